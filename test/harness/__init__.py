"""What tests share: queues, roots, webs, hosts, browsers and services of their own."""

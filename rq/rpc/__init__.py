"""The one way to ask a process of RQ, and to be asked: lines of JSON, a reply for each."""

"""Several nodes as one: who they are, where copies of jobs lie, who hands them out."""

"""`/api/v1`: a row for each operation, which is installed, checked and described by it."""

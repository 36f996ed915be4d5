"""Files: below a directory that is held open, made durable, watched; disks."""

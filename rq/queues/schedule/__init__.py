"""What runs next: pure rules on what waits."""

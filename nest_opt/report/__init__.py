"""What people want to know of a plan, as data; the command line prints it."""

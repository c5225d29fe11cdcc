"""Tables and files made from a finished run."""

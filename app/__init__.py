"""What a user meets: sessions, the command, benchmarks and reports."""

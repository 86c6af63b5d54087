"""The embedded Postgres: its programs, its cluster, its server process."""

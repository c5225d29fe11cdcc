"""The desktop app: views over recordings, live or stored; nothing outside this folder knows Qt."""

"""The command line: thin commands over the other rooms; `main` says what their exit codes mean."""

"""Who may do what: each claim of docs/security.md with its proof."""

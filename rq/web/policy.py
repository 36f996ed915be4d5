"""What a page may load, and from where: its Content-Security-Policy."""

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
# Of `display: none;`, by which the ancestor's forms hid a field: who reads the page may
# look for that. No other inline style is let in.
_HIDES = "sha256-biLFinpqYMtWHmXfkA1BPeCY0/fNt46SAZ+BBk5YUog="
OF_A_FORM = f"{CONTENT_POLICY}; style-src-attr 'unsafe-hashes' '{_HIDES}'"

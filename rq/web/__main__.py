"""`python -m rq.web`: the web process, which the supervisor starts and minds."""

import sys


def main() -> int:
    try:
        from rq.web import server
    except ModuleNotFoundError as error:
        # Said by main itself, since `server` is what cannot be imported.
        sys.stderr.write(f"rq-web: {error}; install what pyproject.toml lists\n")
        return 3
    return server.main()


if __name__ == "__main__":
    sys.exit(main())

"""``python -m nest_opt`` is the same as ``nest-opt``."""

from nest_opt.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

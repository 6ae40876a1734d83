"""The command line: `python -m stepcast`, and the script that the wheel installs."""

import signal
import sys

from ._library import main as run


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the commands' own
    sys.stdout.flush()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

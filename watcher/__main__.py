"""`python -m watcher`."""

from watcher.main import main

raise SystemExit(main())

"""The command line. Nothing heavy is imported before a command needs it, so that `remesh --help` is quick.

`main.py` is the entry and the only place that turns errors into exit codes; `app.py` knows the commands by name;
every other module is one command, or serves several: `options`, `session`, `survey`, `targets`, `render`, `text`.
"""

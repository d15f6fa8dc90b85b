"""The workers: Celery tasks that repair one object each. `celery -A workers.app worker --pool threads -E` starts them.

Start reading in `workers.repair`. `workers.tasks` only decodes, calls it and maps its outcome; `workers.verify` watches
what came of a repair; `workers.chain` writes it down.
"""

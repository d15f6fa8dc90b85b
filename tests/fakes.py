"""What fakeredis lacks of the server that it stands for: `redis.sha1hex` in scripts. A plugin of all tests."""

from hashlib import sha1
from typing import Any

from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

_make_runtime: Any = ScriptingCommandsMixin._get_server_runtime


def _runtime(self: Any, server: Any) -> Any:
    made_before = hasattr(server, "_lua_runtime")
    runtime = _make_runtime(self, server)
    if not made_before:
        runtime.globals()[b"redis"][b"sha1hex"] = lambda text: sha1(text).hexdigest().encode()
    return runtime


ScriptingCommandsMixin._get_server_runtime = _runtime  # type: ignore[method-assign]

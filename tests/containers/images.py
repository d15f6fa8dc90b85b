"""Root file systems and wheels for images, made without a registry and cached outside the tree.

- `python.tar` is what BASE_IMAGE stands for: a minimal Debian or Ubuntu with Python, made by debootstrap from the
  mirror that apt uses here.
- `runtime.tar` is what RUNTIME_IMAGE stands for: of the same, Python and its libraries alone. No shell, and no
  other command.
- The wheels of requirements.lock, downloaded once, so that a build needs no index.
- `redis.tar` is this machine's redis-server with the libraries that it is linked to, made anew each time.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from tests.cluster.build import cache_root
from tests.containers.needs import Unavailable, command, one_at_a_time

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-build.lock")
PACKAGES = "python3,python3-venv,ca-certificates"
# Nothing that runs reads these.
LEFT_OUT = (
    "./dev/*", "./proc/*", "./sys/*", "./run/*", "./tmp/*", "./var/cache/*", "./var/lib/apt/lists/*", "./var/log/*",
    "./usr/share/doc", "./usr/share/man", "./usr/share/info", "./usr/share/locale", "./usr/share/lintian",
)  # fmt: skip
# Of the runtime's root file system, besides the interpreter: what Python reads at run time.
KEPT = ("./etc", "./lib", "./lib64", "./usr/lib", "./usr/lib64", "./usr/share/ca-certificates", "./usr/share/zoneinfo",
        "./tmp", "./run", "./proc", "./sys", "./dev", "./root", "./var")  # fmt: skip
NOT_KEPT = (
    "./usr/lib/apt", "./usr/lib/dpkg", "./usr/lib/systemd", "./usr/lib/init", "./usr/lib/udev", "./usr/share/perl5",
    "./usr/lib/*/perl*", "./usr/lib/*/gconv", "./usr/lib/*/security", "./usr/lib/python3*/ensurepip", "./var/lib/*",
    "./etc/alternatives", "./etc/apt", "./etc/cron*", "./etc/pam.d", "./etc/security",
    "./etc/shadow*", "./etc/gshadow*",
)  # fmt: skip


def root_file_systems(say: TextIO = sys.stderr) -> Path:
    """The folder with python.tar, runtime.tar and `version`; made when missing, which takes a minute or two.

    Raises `Unavailable` where debootstrap is missing or fails.
    """
    codename, mirror = _distribution()
    recipe = hashlib.sha256(repr((PACKAGES, LEFT_OUT, KEPT, NOT_KEPT)).encode()).hexdigest()[:12]
    folder = cache_root() / "images" / f"{codename}-{recipe}"
    with one_at_a_time(folder.parent / ".lock"):
        if not (folder / "version").is_file():
            print(f"containers: making a base image of {codename}, once, a minute or two", file=say, flush=True)
            _make(folder, codename, mirror)
    return folder


def wheels(python: str, say: TextIO = sys.stderr) -> Path:
    """The folder with every wheel of the lock files for this version of Python, such as "3.11"."""
    digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in LOCKS)).hexdigest()[:12]
    folder = cache_root() / "wheels" / f"{python}-{digest}"
    with one_at_a_time(folder.parent / ".lock"):
        if not folder.is_dir():
            print(f"containers: downloading the locked wheels for Python {python}, once", file=say, flush=True)
            _download(folder, python)
    return folder


def redis_tar(target: Path) -> None:
    """Write a root file system with redis-server, redis-cli, what the chart's probes call, and their libraries."""
    programs = [command(name) for name in ("redis-server", "redis-cli", "sh", "grep")]
    libraries = {line for program in programs for line in _libraries(program)}
    names = [*(str(Path(program).resolve()) for program in programs), *programs, *sorted(libraries)]
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            place = Path(scratch, name.lstrip("/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                shutil.copy2(name, place)
        for folder in ("data", "tmp"):
            Path(scratch, folder).mkdir(mode=0o777)
        _run("tar", "-C", scratch, "-cf", str(target), ".")


def _libraries(program: str) -> list[str]:
    listed = _run("ldd", program)
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, flags=re.MULTILINE)


def _distribution() -> tuple[str, str]:
    release = Path("/etc/os-release").read_text(encoding="utf-8") if Path("/etc/os-release").is_file() else ""
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, flags=re.MULTILINE)
    if found is None or shutil.which("apt-get") is None:
        raise Unavailable("no base image: debootstrap works on Debian and Ubuntu, and this is neither")
    codename = found.group(1)
    sites = _run("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages").splitlines()
    mirrors = [site for site, _, name in (line.partition(" ") for line in sites) if name == codename]
    if not mirrors:
        raise Unavailable(f"no base image: apt has no source for {codename}")
    return codename, mirrors[0]


def _make(folder: Path, codename: str, mirror: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix=".root-", dir=folder) as scratch:
        root = Path(scratch)
        _run(command("debootstrap"), "--variant=minbase", f"--include={PACKAGES}", codename, scratch, mirror)
        interpreter = (root / "usr/bin/python3").readlink().name
        left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
        _run("tar", "-C", scratch, *left_out, "-cf", str(folder / "python.tar"), ".")
        kept = [*KEPT, "./usr/bin/python3", f"./usr/bin/{interpreter}"]
        not_kept = [f"--exclude={pattern}" for pattern in NOT_KEPT]
        present = [name for name in kept if (root / name).is_symlink() or (root / name).exists()]
        _run("tar", "-C", scratch, *left_out, *not_kept, "-cf", str(folder / "runtime.tar"), *present)
    (folder / "version").write_text(interpreter.removeprefix("python"), encoding="utf-8")


def _download(folder: Path, python: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".wheels-", dir=folder.parent) as scratch:
        target, wanted = Path(scratch, "wheels"), Path(scratch, "wanted.txt")
        # pip would judge "python_full_version < …" by the Python that runs it, not by the image's.
        locked = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in LOCKS)
        wanted.write_text(re.sub(r" ; python_\S+ [<>=!]+ '[\d.]+'", "", locked), encoding="utf-8")
        _run(
            sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--require-hashes", "--no-deps",
            "--python-version", python, "--dest", str(target), "-r", str(wanted),
        )  # fmt: skip
        target.rename(folder)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Unavailable(f"{Path(argv[0]).name} failed: {' '.join(last)}")
    return done.stdout

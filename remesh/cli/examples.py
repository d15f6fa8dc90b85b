"""Examples for the end of each command's `--help`. A test parses each, and runs what ends by itself."""

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "scan": (
        "remesh scan -A                             every namespace",
        "remesh scan -n shop --mesh linkerd -o wide",
        "remesh scan -A -o json",
    ),
    "explain": (
        "remesh explain rs/web-6f -n shop",
        "remesh explain deploy/web -n shop          and its bare pods",
        "remesh explain -f deployment.yaml -o json  of a file, without any cluster",
    ),
    "plan": (
        "remesh plan -A                             everything that would be repaired now",
        "remesh plan deploy/web -n shop",
    ),
    "repair": (
        "remesh repair rs/web-6f -n shop --wait",
        "remesh repair --all -A --dry-run           the same as `remesh plan -A`",
        "remesh repair --all -n shop --wait --timeout 600 --quiet",
    ),
    "audit": (
        "remesh audit rs/web-6f -n shop",
        "remesh audit --since 1h --type outcome",
        "remesh audit --follow -o jsonl",
        "remesh audit export > trail.jsonl",
    ),
    "audit verify": ("remesh audit verify",),
    "audit prune": ("remesh audit prune --older-than 90d --export old.jsonl --dry-run",),
    "quarantine": (
        "remesh quarantine list",
        "remesh quarantine clear rs/web-6f -n shop",
        "remesh quarantine clear --all",
    ),
    "brake": (
        "remesh brake list",
        "remesh brake clear istio-system/istiod",
        "remesh brake clear --all",
    ),
    "status": (
        "remesh status",
        "remesh status --watch                      again every two seconds",
        "remesh status -o json",
    ),
    "check": (
        "remesh check",
        "remesh check -o wide                       each line with a link to its explanation",
        "remesh check --wait 300 -o json            until nothing fails, for five minutes at most",
    ),
    "run": (
        "remesh run --observe                       write nothing to the cluster",
        "remesh run -n shop,bank                    repair only there",
        "remesh run --flower --cluster staging",
    ),
    "demo": (
        "remesh demo",
        "remesh demo --on sim --count 100 --outage 60",
        "remesh demo --fault wrong-ca --quiet",
    ),
    "files": (
        "remesh files",
        "remesh files policy.toml --to .",
    ),
    "completion": (
        "source <(remesh completion bash)           in ~/.bashrc",
        "source <(remesh completion zsh)            in ~/.zshrc, after compinit",
        "remesh completion fish > ~/.config/fish/completions/remesh.fish",
    ),
    "version": ("remesh version -o json",),
}


def epilog(command: str) -> str | None:
    """The examples of one command as the end of its help; the backspace keeps its lines as they are."""
    lines = EXAMPLES.get(command)
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None

"""Ask whether any of the locked versions is known to be vulnerable.

    python .ci/audit.py runs/audit/bin/pip-audit requirements.lock

The exit status is 1 if one is. Where no service can be asked, that is said, loudly, and is no
failure: a machine without a network is not a vulnerability.
"""

import json
import subprocess
import sys

OPTIONS = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off")


def main(program: str, lock: str) -> int:
    """Run pip-audit and say what came of it."""
    try:
        done = subprocess.run(
            [program, *OPTIONS, "-r", lock], capture_output=True, text=True, timeout=300
        )
        packages = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired) as error:
        return _unasked(str(error))
    except (ValueError, KeyError, TypeError):
        return _unasked((done.stderr.strip().splitlines() or ["no answer"])[-1])
    asked = [package for package in packages if "skip_reason" not in package]
    found = [(package, vuln) for package in asked for vuln in package.get("vulns", ())]
    for package, vuln in found:
        fixed = ", ".join(vuln.get("fix_versions") or ()) or "no release"
        print(f"{package['name']} {package['version']}: {vuln['id']}, fixed in {fixed}")
    if not asked:
        return _unasked((packages[0].get("skip_reason") if packages else None) or "no package")
    left = [package["name"] for package in packages if "skip_reason" in package]
    print(f"audited {len(asked)} packages: {len(found)} known vulnerabilities")
    if left:
        print(f"NOT AUDITED: {', '.join(left)} (the service does not know them)")
    return int(bool(found))


def _unasked(reason: str) -> int:
    print("=" * 78)
    print(f"NOT AUDITED: no vulnerability service could be asked ({reason[:300]})")
    print("=" * 78)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

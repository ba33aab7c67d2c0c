"""The checkout's `.venv`, and the record in it of what bin/setup has done."""

import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys

BLOCK = "# >>> bin/setup >>>\n{}# <<< bin/setup <<<\n"


class SetupError(Exception):
    """What stops a set-up, in one sentence for its user."""


class Environment:
    """The virtual environment of one checkout."""

    def __init__(self, root, quiet):
        self.root, self.quiet, self.changed = root, quiet, False
        self.folder = root / ".venv"
        self.bin = self.folder / "bin"
        self.python = self.bin / "python"
        self.log = self.folder / "setup.log"
        self.stamp = self.folder / "setup.json"
        self.constraint = self.folder / "torch-constraint.txt"
        self.abi = self.site = self.lock_file = None

    def say(self, text):
        """Tell what is being done."""
        self.changed = True
        print(text, flush=True)

    def note(self, text):
        """Tell that something needs no doing."""
        if not self.quiet:
            print(text, flush=True)

    def lock(self):
        """Let one set-up at a time work on this checkout."""
        self.lock_file = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.say("another bin/setup is at work here: waiting for it")
            fcntl.flock(self.lock_file, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks

    def make(self):
        """Create the environment where it is not there, or is not what its record says."""
        self.record = read_json(self.stamp)
        if self.record.get("busy"):
            self.restart("an earlier set-up was interrupted")
        elif self.record.get("root", str(self.root)) != str(self.root):
            self.restart("it was made in another folder")
        elif "root" in self.record and not self.inspect():
            self.restart("its Python does not run any more")
        if "root" not in self.record:
            self.say(f".venv: making it with Python {sys.version.split()[0]}")
            self.folder.mkdir(exist_ok=True)
            # Not sys.executable: that may be the environment's own python.
            self.change([sys._base_executable, "-m", "venv", self.folder], "make .venv")
            self.remember("root", str(self.root))
            if not self.inspect():
                raise SetupError(f"the Python of {self.folder} does not run")

    def restart(self, why):
        self.say(f".venv: {why}: starting it again")
        shutil.rmtree(self.folder)
        self.record = {}

    def inspect(self):
        """Learn the environment's ABI and its folder of packages; false if its python does not run."""
        ask = "import sysconfig as s; print(s.get_config_var('SOABI')); print(s.get_path('purelib'))"
        try:
            answer = subprocess.run([self.python, "-c", ask], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        self.abi, self.site = answer.stdout.split("\n")[:2]
        return True

    def version(self, package):
        """The installed version of a package, or None."""
        found = importlib.metadata.distributions(name=package, path=[self.site])
        return next((distribution.version for distribution in found), None)

    def remember(self, step, value):
        """Write what a step has done into the record."""
        if self.record.get(step) != value:
            self.record[step] = value
            write(self.stamp, json.dumps(self.record, indent=1))

    def pip(self, *args, what, **extra):
        """Run pip, never letting it touch torch once that is there."""
        if args[0] == "install" and self.constraint.exists():
            args = (*args, "--constraint", self.constraint)
        command = [self.python, "-m", "pip", "--no-input", "--disable-pip-version-check", *args]
        self.change(command, what, extra)

    def uninstall(self, *packages):
        present = [package for package in packages if self.version(package)]
        if present:
            self.say(f".venv: removing {' and '.join(present)}")
            self.pip("uninstall", "--yes", *present, what=f"remove {' and '.join(present)}")

    def change(self, command, what, extra=None):
        """Run a command that changes the environment; one that is killed leaves `busy` in the record."""
        self.remember("busy", True)
        self.log.write_text("")
        # An orphan of a killed set-up keeps the lock until it has ended.
        code = run(command, self.log, extra, pass_fds=[self.lock_file])
        self.remember("busy", False)
        if code:
            raise SetupError(f"could not {what}: {last_error(self.log)} (log: {self.log})")


def run(command, log, extra=None, **options):
    """Run a command with its output in a log; if this program is stopped, so is all that it started."""
    with open(log, "ab") as output:
        output.write(f"\n$ {' '.join(map(str, command))}\n".encode())
        output.flush()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(extra or {})},
            start_new_session=True,
            **options,
        )
        try:
            return child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            raise


def last_error(log):
    """The last line of a log that tells of an error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"error\b|\w*Error\b", line, re.IGNORECASE)]
    return re.sub("(?i)^error: ", "", (errors or lines or ["no output"])[-1]).rstrip(".")


def set_block(path, text):
    """Make the text the one block of bin/setup in a file; an empty text takes the block away."""
    old = path.read_text()
    new = re.sub(BLOCK.format("(?s:.*?)"), "", old) + (BLOCK.format(text) if text else "")
    if new != old:
        write(path, new)


def write(path, text):
    """Replace a file so that it is never seen half written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}

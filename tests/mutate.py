"""Makes mutants of kernels and runs the tests that a table names for them: ``python -m tests.mutate [--kernel PATTERN] [--list] …``.

A mutant lacks one barrier, fence, mask of a warp, guard or reset of shared memory of a kernel or of the device library; only the syntax tree changes,
not the sources on disk. A mutant that no test notices survives: a test is missing, the code is not needed, or ``KNOWN`` of :mod:`mutants` says why no
test can notice. Tests run in the emulator, first on the unchanged kernels; each mutant is a fork of that process, which lowers only the changed
functions again. ``--lines`` lists the lines of kernels that no watched test runs under the race detector instead.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import gc
import importlib.machinery
import importlib.util
import io
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT, TESTS = Path(__file__).parents[1], Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(ROOT)]

import mutants  # noqa: E402 - of tests/support, which is on the path by now
import mutations  # noqa: E402
from mutations import Site  # noqa: E402

WATCHED = "test_watched.py"
SHUT = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "--tb=line", "--full")


class Verdict(NamedTuple):
    killed: bool
    why: str
    seconds: float


def files() -> list[Path]:
    """The files of kernels and of the device library."""
    return [path for path in sorted((ROOT / "numba_baracuda").rglob("*.py")) if {"kernels", "device"} & set(path.parts)]


def with_device_functions() -> list[str]:
    """Paths, from the root, of those files whose lines run on the device."""
    return [path.relative_to(ROOT).as_posix() for path in files() if mutations.device_functions(ast.parse(path.read_text()))]


def sites() -> list[Site]:
    """All sites of mutations."""
    return [site for path in files() for site in mutations.sites_of(path, ROOT)]


def stale(found: list[Site]) -> list[str]:
    """Entries of the tables that match nothing, and files with sites but no tests."""
    there = {(site.file, site.key) for site in found}
    named = {site.file for site in found}
    return [
        *[f"KNOWN names what is not there: {file}: {key}" for file, keys in mutants.KNOWN.items() for key in keys if (file, key) not in there],
        *[f"TESTS names {file}, which has nothing to change" for file in mutants.TESTS if file not in named],
        *[f"TESTS has no tests for {file}" for file in sorted(named - set(mutants.TESTS))],
    ]


def path_to(name: str) -> str:
    """The path of a test file, with ``::test`` if the name has one."""
    file, *test = name.split("::", 1)
    (path,) = TESTS.rglob(file)
    return "::".join((str(path), *test))


def arguments_of(file: str) -> list[str]:
    """The arguments of pytest for a file, by its name in the tables."""
    import watched_cases

    named = [
        [path_to(each)] if ".py" in each else [f"{path_to(WATCHED)}::test_case[{case}]" for case in fnmatch.filter(watched_cases.CASES, each)]
        for each in mutants.TESTS[file]
    ]
    return list(dict.fromkeys(each for some in named for each in some))


def run_tests(arguments: list[str], which: str = "not gpu and not compile") -> int:
    import pytest

    return int(pytest.main([*SHUT, "-m", which, *arguments]))


# ---------------------------------------------------------------- one mutant


def _pairs(old: types.CodeType, new: types.CodeType) -> Iterator[tuple[types.CodeType, types.CodeType]]:
    """The innermost code objects that differ."""
    inner = [[each for each in code.co_consts if isinstance(each, types.CodeType)] for code in (old, new)]
    different = [pair for pair in zip(*inner, strict=True) if pair[0] != pair[1]]
    for pair in different:
        yield from _pairs(*pair)
    if not different and old != new:
        yield old, new


def functions_of(path: str) -> list[types.FunctionType]:
    """All function objects of a file that tests have created."""
    file = str(ROOT / path)
    # isinstance would ask a weak proxy for the class of its referent, which may be dead
    return [each for each in gc.get_objects() if type(each) is types.FunctionType and each.__code__.co_filename == file]


def swap(site: Site, made: list[types.FunctionType]) -> None:
    """Gives the functions of a site their changed code, and drops their lowered forms."""
    from numba_baracuda.emulator import program
    from numba_baracuda.runtime import jit

    file = ROOT / site.path
    source = file.read_text()
    changed = compile(mutations.mutant(site, source), str(file), "exec", dont_inherit=True)
    ((old, new),) = _pairs(compile(ast.parse(source), str(file), "exec", dont_inherit=True), changed)
    functions = [each for each in made if each.__code__ == old]
    if not functions:
        raise LookupError(f"no test makes this function: {site}")
    for function in functions:
        function.__code__ = new
    for (function, kinds), (name, _) in list(program._lowered.items()):
        if function in functions:
            program.write(name, jit.infer.__wrapped__(function, kinds))


def _hooked(site: Site) -> None:
    """Makes the import of the site's module load the changed code."""
    file = ROOT / site.path
    name = site.path.removesuffix(".py").replace("/", ".")
    code = compile(mutations.mutant(site, file.read_text()), str(file), "exec", dont_inherit=True)

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> Any:
            return code

    class Finder:
        @staticmethod
        def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
            return importlib.util.spec_from_file_location(fullname, file, loader=Loader(fullname, str(file))) if fullname == name else None

    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]


def fresh(number: int) -> int:
    """Runs the tests of the ``number``-th site in this process, which has imported nothing of the package yet."""
    site = sites()[number]
    _hooked(site)
    return run_tests(arguments_of(site.file), "not gpu")


def judge(site: Site, number: int, seconds: float, made: list[types.FunctionType]) -> Verdict:
    """Whether the tests notice the change, in a process of its own, in so many seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        if site.function == "module":
            child = subprocess.Popen([sys.executable, "-m", "tests.mutate", "--fresh", str(number)], cwd=ROOT, stdout=out, stderr=out)
            pid, seconds = child.pid, seconds + 60
        else:
            pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            code = 99
            with contextlib.suppress(BaseException):
                code = _in_fork(site, made)
            os._exit(code)
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() - began > seconds:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return Verdict(True, f"not done after {seconds:.0f} s", seconds)
            time.sleep(0.02)
        out.seek(0)
        said, code = out.read().decode(errors="replace"), os.waitstatus_to_exitcode(status)
    took = time.monotonic() - began
    if code == 98:
        return Verdict(False, said.strip().splitlines()[-1], took)
    return Verdict(code != 0, _reason(said) if code else "", took)


def _in_fork(site: Site, made: list[types.FunctionType]) -> int:
    try:
        swap(site, made)
    except LookupError as error:
        print(error)
        sys.stdout.flush()
        return 98
    except Exception as error:  # numba rejects the changed code
        print(f"E   does not compile: {type(error).__name__}: {str(error).splitlines()[0]}")
        sys.stdout.flush()
        return 97
    code = run_tests(arguments_of(site.file))
    sys.stdout.flush()
    return code


def _reason(said: str) -> str:
    found = re.findall(
        r"^(?:E   |.*?: )((?:[\w.]*\.)?(?:\w*(?:Error|Race|Fault|Deadlock|Barrier|Construct|Exception)\b.*|does not compile.*))$", said, re.M
    )
    return found[0][:160] if found else "a test fails"


# ---------------------------------------------------------------- the command


def _judge_file(path: str, chosen: list[tuple[int, Site]], seconds: float, known: bool, results: Path) -> int:
    """Runs a file's tests on the unchanged kernels, then on each mutant; writes a line of results for each mutant."""
    began = time.monotonic()
    file = next(site.file for _, site in chosen if site.path == path)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if run_tests(arguments_of(file)):
            sys.stderr.write(said.getvalue())
            return 1
    warm = time.monotonic() - began
    gc.collect()
    made = functions_of(path)
    gc.freeze()
    print(f"{path}: tests pass in {warm:.1f} s", flush=True)
    for number, site in chosen:
        reason = mutants.KNOWN.get(file, {}).get(site.key)
        if site.path != path:
            continue
        if reason and not known:
            word, why, took = "known", reason, 0.0
        else:
            killed, why, took = judge(site, number, seconds or max(60.0, 5 * warm), made)
            word = ("KNOWN BUT KILLED" if reason else "killed") if killed else "known" if reason else "SURVIVED"
        print(f"  {word:8} {site}  ({took:.1f} s{': ' if why else ''}{why})", flush=True)
        with results.open("a") as out:
            out.write(f"{word}\t{site}\n")
    return 0


def judge_all(chosen: list[tuple[int, Site]], seconds: float, known: bool) -> int:
    """Judges all of these; 0 if only known mutants survive."""
    import numba.cuda  # noqa: F401 - once, for all files
    import pytest  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_BARACUDA_CACHE_DIR"] = str(Path(folder, "cache"))
        results, broken = Path(folder, "results"), []
        results.touch()
        for path in dict.fromkeys(site.path for _, site in chosen):
            pid = os.fork()  # the lowered kernels of a file's tests end with the process
            if pid == 0:
                os._exit(_judge_file(path, chosen, seconds, known, results))
            if os.waitpid(pid, 0)[1]:
                broken.append(path)
        verdicts = [line.split("\t") for line in results.read_text().splitlines()]
    counts = Counter(word for word, _ in verdicts)
    for path in broken:
        print(f"BROKEN {path}: its tests fail on the kernels as they are")
    for word, site in verdicts:
        if word in ("SURVIVED", "KNOWN BUT KILLED"):
            print(word, site)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    print(f"{len(verdicts)} mutants: {said}; {used.ru_utime + used.ru_stime:.0f} s of one core")
    return int(bool(broken or counts["SURVIVED"] or counts["KNOWN BUT KILLED"]))


def watched_arguments(paths: list[str]) -> list[str]:
    """The watched tests that the rows of these files name; all of them if a file has no row."""
    watched, names = [path_to(each) for each in mutants.WATCHED], [mutations.name_of(path) for path in paths]
    if any(name not in mutants.TESTS for name in names):
        return watched
    return list(dict.fromkeys(each for name in names for each in arguments_of(name) if each.partition("::")[0] in watched))


def lines(paths: list[str]) -> int:
    """Prints the lines of these files that none of their watched tests has run under the race detector."""
    import watched_lines

    watched_lines.watch()
    if code := run_tests(watched_arguments(paths)):
        return code
    found = watched_lines.missing(ROOT, [ROOT / path for path in paths])
    expected = {each for each in mutants.UNWATCHED if each[0] in paths or not (ROOT / each[0]).exists()}
    left = [each for each in found if each not in expected]
    for path, function, text in left:
        print(f"never ran under the race detector: {path}: {function}: {text}")
    for entry in expected - set(found):
        print(f"UNWATCHED names what has run, or is not there: {entry}")
    print(f"{len(paths)} files: {len(left)} lines never ran under the race detector")
    return int(bool(left or expected - set(found)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernel", default="*", metavar="PATTERN", help="files whose path under numba_baracuda matches, such as '*/carries.py'")
    parser.add_argument("--site", default="", metavar="REGEX", help="only sites whose description matches, such as ': (barrier|mask): '")
    parser.add_argument("--list", action="store_true", help="list the sites, and run nothing")
    parser.add_argument("--known", action="store_true", help="judge known survivors, too")
    parser.add_argument(
        "--seconds", type=float, default=0, metavar="T", help="that a mutant may take; by default five times what the tests take, at least 60"
    )
    parser.add_argument("--lines", action="store_true", help="list the lines of kernels that no watched test runs under the race detector")
    parser.add_argument("--fresh", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fresh >= 0:
        return fresh(given.fresh)
    pattern = given.kernel if "*" in given.kernel else f"*{given.kernel}*"
    paths = [path for path in with_device_functions() if fnmatch.fnmatch(path.partition("/")[2], pattern)]
    if given.lines and paths:
        return lines(paths)
    found = sites()
    for complaint in stale(found):
        print(complaint)
    chosen = [(k, site) for k, site in enumerate(found) if site.path in paths and re.search(given.site, str(site))]
    if not chosen:
        parser.error("no place to change has such a kernel and site")
    if given.list:
        print(*(site for _, site in chosen), sep="\n")
        return 0
    return judge_all(chosen, given.seconds, given.known) or int(bool(stale(found)))


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_BARACUDA_EMULATE", "1")
    sys.exit(main())

#!/usr/bin/python3
"""Do manual pages and completion have what the help has?  test_completion.py COMMAND

Each option that `windlass help X` lists stands in the page of X and in the completion of bash, zsh and fish. bash and fish
complete command lines, zsh reads its file, and man finds nothing wrong in the pages. A shell that is not there counts as skipped.
"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

command = sys.argv[1]
missing = [program for program in ("bash", "zsh", "fish", "man") if not shutil.which(program)]
errors = []


def run(*words, **more):
    done = subprocess.run(words, text=True, capture_output=True, timeout=60, **more)
    if done.returncode:
        errors.append(f"{shlex.join(words[:3])}: exit status {done.returncode}: {done.stderr.strip()}")
    return done


def expect(fits, text):
    if not fits:
        errors.append(text)


def commands_of_overview():
    return re.findall(r"^  (?:windlass )?([a-z]+)\b.*$", run(command).stdout.split("\nThis machine")[0], re.M)


def options_of(help_text):
    return [name for line in re.findall(r"^ +(-[^ ]+)", help_text, re.M) for name in line.split(",")]


def bash_completes(line, file, folder):
    """What bash offers for the last word of `line`."""
    words = re.findall(r"=|[^ =]+", line) + ([""] if line.endswith(" ") else [])
    script = (f"source {shlex.quote(str(file))}; COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}; "
              'complete -p windlass > /dev/null || exit 9; _windlass; printf "%s\\n" "${COMPREPLY[@]}"')
    return run("bash", "--norc", "-c", script, cwd=folder).stdout.split("\n")[:-1]


def fish_completes(line, file, folder):
    done = run("fish", "--no-config", "-c", f"source {shlex.quote(str(file))}; complete -C {shlex.quote(line)}", cwd=folder)
    return [offer.split("\t")[0] for offer in done.stdout.split("\n")[:-1]]


def check_options(help_texts, files, pages):
    total = 0
    for name, text in help_texts.items():
        expect(not re.search(r"\b(TEXT|UINT|FLOAT|INT)\b", text), f"help {name}: a type of the parser's")
        page = (pages / f"windlass-{name}.1").read_text()
        for option in options_of(text):
            total += 1
            expect(f"\\fB{option.replace('-', chr(92) + '-')}\\fR" in page, f"the page of {name} has no {option}")
            bash = re.search(rf"^    {name}\)\n      options='([^']*)'", files["bash"].read_text(), re.M)
            expect(bash and option in bash.group(1).split(" "), f"bash has no {name} {option}")
            zsh = re.search(rf"^    {name}\)\n(.*?);;", files["zsh"].read_text(), re.M | re.S)
            expect(zsh and re.search(rf"[)*]{option}[+=]?\[", zsh.group(1)), f"zsh has no {name} {option}")
            word = " -l " + option[2:] if option.startswith("--") else " -s " + option[1:]
            fish = [line for line in files["fish"].read_text().split("\n") if f"__windlass_command {name}'" in line]
            expect(any(word + " " in line for line in fish), f"fish has no {name} {option}")
    expect(total > 40, f"the help lists {total} options")
    return total


def check_offers(complete, shell, file, folder):
    (folder / "a profile.pb.gz").touch()
    (folder / "folder").mkdir(exist_ok=True)
    pid = str(subprocess.os.getpid())
    for line, wanted, unwanted in [
            ("windlass re", {"record", "report"}, {"walk"}),
            ("windlass record --fr", {"--frequency"}, {"--duration"}),
            ("windlass emit --mode ", {"exact", "function", "n+1", "whole"}, {"a profile.pb.gz", "gas"}),
            ("windlass emit --syntax m", {"masm"}, {"gas"}),
            ("windlass report a", {"a profile.pb.gz"}, set()),
            ("windlass record -o a", {"a profile.pb.gz"}, set()),
            ("windlass record -p ", {pid}, {"a profile.pb.gz"}),
            ("windlass walk ", {pid, "a profile.pb.gz"}, {"record"}),
            ("windlass walk --core a", {"a profile.pb.gz"}, {pid}),
            ("windlass completion ", {"bash", "zsh", "fish"}, {"a profile.pb.gz"}),
            ("windlass help wa", {"walk"}, {"record"}),
            ("windlass record --frequency ", set(), {"a profile.pb.gz", pid, "exact"}),
            ("windlass record -F 99 bas", {"bash"}, {"a profile.pb.gz"}),
            ("windlass record -- bas", {"bash"}, {"a profile.pb.gz"}),
    ]:
        offered = {offer.replace("\\", "") for offer in complete(line, file, folder)}
        expect(wanted <= offered, f"{shell}: '{line}' is not completed to {sorted(wanted - offered)}")
        expect(not unwanted & offered, f"{shell}: '{line}' is completed to {sorted(unwanted & offered)}")
    if shell == "bash":
        offered = bash_completes("windlass emit --mode=e", file, folder)
        expect(offered == ["exact"], f"bash: --mode=e is completed to {offered}")
        offered = bash_completes("windlass record -- tar a", file, folder)
        expect(offered == ["a profile.pb.gz"], f"bash: an argument of the command is completed to {offered}")


with tempfile.TemporaryDirectory() as name:
    scratch = pathlib.Path(name)
    pages = scratch / "man"
    pages.mkdir()
    run(command, "help", "--man-pages", str(pages))
    files = {}
    for shell in ("bash", "zsh", "fish"):
        files[shell] = scratch / shell
        files[shell].write_text(run(command, "completion", shell).stdout)
        if shell not in missing:
            run(shell, "-n", str(files[shell]))
    names = commands_of_overview()
    expect({page.name for page in pages.iterdir()} == {"windlass.1"} | {f"windlass-{name}.1" for name in names}, "a page is missing, or there is one too many")
    total = check_options({name: run(command, "help", name).stdout for name in names}, files, pages)
    work = scratch / "work"
    work.mkdir()
    if "bash" not in missing:
        check_offers(bash_completes, "bash", files["bash"], work)
    if "fish" not in missing:
        check_offers(fish_completes, "fish", files["fish"], work)
    if "man" not in missing:
        for page in sorted(pages.iterdir()):
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page))
            expect(not done.stderr, f"man: {page.name}: {done.stderr}")

print("\n".join(errors) or f"{total} options of {len(names)} commands, in manual pages and three completions")
if errors:
    sys.exit(1)
if missing:
    print(f"SKIPPED: there is no {', '.join(missing)}")

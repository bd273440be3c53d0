"""The documentation runs: every Python block, every command, and the example of every public name."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import surefoot
from helpers.scripted_server import Answer, Asked, scripted
from helpers.serving import served
from surefoot.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CARD = ROOT / "src" / "surefoot" / "families" / "mini" / "checkpoint" / "README.md"
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", CARD]
HUB_ID = "Qwen/Qwen2.5-Math-PRM-7B"
SERVICE = "http://127.0.0.1:8000"
JUDGE = "http://127.0.0.1:8002"


@pytest.fixture(autouse=True)
def hub(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's place is taken by the small checkpoint; all code behind the download is the real one."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **options: str(checkpoint))
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "scores.sqlite"))


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[str]:
    """A running service, in the place of the one that pages speak of."""
    with served([scorer]) as (url, _):
        yield url


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    """A chat model that finds no error, in the place of the critic that pages speak of."""

    def script(asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            return Answer({"data": [{"id": "judge", "owned_by": "system"}]})
        message = {"role": "assistant", "content": "Every paragraph holds: \\boxed{-1}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return Answer({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})

    with scripted(script) as server:
        yield server.url


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def write_graded(scorer: surefoot.Scorer) -> None:
    """Labels with which random weights agree a little, so that a calibration can be fitted."""
    asked = [(f"What is {number} + 1?", [f"{number} + 1 = {number + 1}."]) for number in range(12)]
    scores = [result.mean or 0.0 for result in scorer.score_many(asked)]
    middle = sorted(scores)[5]
    rows = [
        {"problem": question, "steps": steps, "label": -1 if (score > middle) != (number == 3) else 0}
        for number, ((question, steps), score) in enumerate(zip(asked, scores, strict=True))
    ]
    Path("graded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_samples() -> None:
    row = {"question": "What is 2 + 3?", "solution": "2 + 3 = 5.\nThe answer is 5.", "target": 5}
    Path("samples.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_in_their_order(
    page: Path,
    scorer: surefoot.Scorer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graded(scorer)
    write_samples()
    names = {
        "question": "What is 2 + 3 * 4?",
        "solution": "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14",
        "another": ["3 * 4 = 12.", "2 + 12 = 15."],
    }
    for block in blocks(page, "python"):
        if SERVICE in block:
            block = block.replace(SERVICE, request.getfixturevalue("service"))
        if JUDGE in block:
            block = block.replace(JUDGE, request.getfixturevalue("judge"))
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("name", ["getting-started", "quickstart", "scoring", "rl", "search", "serving", "recipes"])
def test_the_first_block_can_be_pasted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It defines every name that it uses, and downloads nothing."""
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(huggingface_hub, "snapshot_download")
    if name == "quickstart":
        cells = json.loads((ROOT / "docs" / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
        block = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    else:
        block = blocks(ROOT / "docs" / f"{name}.md", "python")[0]
    if SERVICE in block:
        block = block.replace(SERVICE, request.getfixturevalue("service"))
    exec(compile(block, name, "exec"), {})


def test_commands_in_bash_blocks_can_be_parsed() -> None:
    """They need servers, large models or much time, so they are not run; their options exist."""
    from surefoot.cli.main import load_command

    parsed = 0
    for page in PAGES:
        text = "".join(blocks(page, "bash")).replace("\\\n", " ")
        for words in (shlex.split(line, comments=True) for line in text.splitlines()):
            if words[:1] != ["surefoot"] or words[1].startswith("--"):
                continue
            name, *arguments = words[1:]
            if ">" in arguments:
                arguments = arguments[: arguments.index(">")]
            command = load_command(name)
            if subcommands := getattr(command, "commands", None):
                command, arguments = subcommands[arguments[0]], arguments[1:]
            assert command.make_context(name, arguments), words
            parsed += 1
    assert parsed > 40


def test_commands_run(
    checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graded(scorer)
    write_samples()
    Path("solutions.jsonl").write_text('{"question": "What is 1 + 1?", "steps": ["1 + 1 = 2."]}\n')
    Path("ProcessBench").mkdir()
    Path("ProcessBench/gsm8k.json").write_text('[{"problem": "What is 1 + 1?", "steps": ["1 + 1 = 2."], "label": -1}]')
    Path("prmbench.jsonl").write_text(
        '{"idx": "1", "classification": "circular", "modified_question": "What is 1 + 1?", '
        '"modified_process": ["1. 1 + 1 = 3."], "error_steps": [1]}\n'
    )
    Path("AgentProcessBench").mkdir()
    Path("AgentProcessBench/hotpotqa.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "What is 1 + 1?"}, {"role": "assistant", "content": "It is 2."}], '
        '"step_labels": {"1": 1}}\n'
    )
    Path("rollouts.jsonl").write_text(
        '{"question": "What is 1 + 1?", "steps": ["So \\\\boxed{2}."], "ground_truth": "2", "qwen_prm": [0.9]}\n'
    )
    for name in ("labelled", "held_out"):
        row = {"question": f"What is 1 + 1 ({name})?", "steps": ["1 + 1 = 2.", "So it is 3."], "label": 1}
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"label": -1}) + "\n")
    text = "".join(block for page in PAGES for block in blocks(page, ""))
    commands = [words for words in _commands(text) if words[0] == "surefoot"]
    assert len(commands) >= 3
    for _, *arguments in commands:
        # The scores of random weights are not those of the model card, so `check` has to say no.
        assert main(arguments) == (1 if arguments[0] == "check" else 0)


def test_getting_started_shows_what_its_first_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """And the embedded model is right about it: the second step is the first wrong one."""
    page = ROOT / "docs" / "getting-started.md"
    command = next(words for words in _commands("".join(blocks(page, ""))) if words[:2] == ["surefoot", "score"])
    assert main(command[1:]) == 0
    found, (shown, *_) = capsys.readouterr().out, blocks(page, "text")
    number = re.compile(r"\d\.\d{3}")
    assert number.sub("#", found) == number.sub("#", shown)
    assert list(map(float, number.findall(found))) == pytest.approx(
        list(map(float, number.findall(shown))), rel=0, abs=0.002
    )
    assert "first error at step 2" in found


def test_the_commands_of_the_service(service: str) -> None:
    """A service does not end by itself, so its commands are only read; what asks it is asked."""
    from surefoot.cli.main import load_command

    text = "".join(blocks(ROOT / "docs" / "serving.md", "bash")).replace("\\\n", " ")
    commands = [shlex.split(line, comments=True) for line in text.splitlines() if line.strip()]
    serving = [words for words in commands if words[:2] == ["surefoot", "serve"]]
    asking = [words for words in commands if words[0] == "curl"]
    assert len(serving) >= 2
    for words in serving:
        options = load_command("serve").make_context("serve", words[2:]).params
        assert HUB_ID in (*(options["model"] or [HUB_ID]), options["tokenizer"])
    for words in asking:
        path, body = words[2].removeprefix(SERVICE), words[words.index("-d") + 1]
        reply = httpx.post(service + path, content=body, headers={"Content-Type": "application/json"})
        assert reply.json()["results"][0]["status"] == "scored"


def _commands(text: str) -> list[list[str]]:
    # shlex drops the line break after a comment as well, and would join the next command to this one.
    lexer = shlex.shlex(re.sub(r"[ \t]+#.*", "", text), posix=True, punctuation_chars=True)
    lexer.whitespace = " \t"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word == "\n":
            commands.append([])
        elif word == ">" or (commands[-1] and commands[-1][-1] == ">"):
            commands[-1] = [*commands[-1], ">"] if word == ">" else commands[-1][:-1]
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.parent.name + "/" + page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Within the repository: to files that exist, and to headings that they have."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    inline = re.findall(r"\]\(([^)\s]+)\)", text)
    reference = re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    for target in inline + reference:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}, which {file.name} does not have"


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub turns them into anchors."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in LINKED[1:] if f"]({page.relative_to(ROOT).as_posix()}" not in text]


@pytest.mark.parametrize("name", [name for name in surefoot.__all__ if name != "__version__"])
def test_every_public_name_has_an_example_that_runs(
    name: str, scorer: surefoot.Scorer, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_samples()
    Path("ProcessBench").mkdir()
    Path("ProcessBench/gsm8k.json").write_text('[{"problem": "What is 1 + 1?", "steps": ["1 + 1 = 2."], "label": -1}]')
    value = getattr(surefoot, name)
    text = inspect.cleandoc(value.__doc__ or "").replace(SERVICE, service)
    names = {"surefoot": surefoot, "asyncio": asyncio, "evaluate": surefoot.evaluate, "scorer": scorer}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    for example in test.examples:
        # No vLLM server runs here; tests/scoring/test_vllm.py starts one, and tests/critics have generators.
        example.options[doctest.SKIP] = "vllm+" in example.source or JUDGE in example.source
    if test.examples:
        report: list[str] = []
        assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)
    else:
        blocks = re.findall(r"(?<=\n\n)(?: {4}.*\n?)+", text)
        assert blocks, "no example"
        exec(compile(inspect.cleandoc("\n" + blocks[0]), name, "exec"), names)

"""Find out which server this is and which model it serves, by asking. Nothing is generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from surefoot.client.transport import RejectedError
from surefoot.errors import OptionError, ServiceError
from surefoot.generate.connection import KEY_VARIABLE, Connection

DialectName = Literal["vllm", "sglang", "llamacpp", "openai"]
DIALECTS: tuple[DialectName, ...] = get_args(DialectName)
"""`openai` is OpenAI itself, and every server that does not say what it is."""
LISTED = 20
"""How many models an error names."""


@dataclass(frozen=True)
class ServedModel:
    """A model that a server offers."""

    dialect: DialectName
    name: str
    root: str | None = None
    """The folder, file or hub id that the server loaded, if it says so."""
    context: int | None = None
    """The most tokens of prompt and answer together, if the server says so."""


def check_dialect(dialect: str | None) -> None:
    """Raise if a dialect is unknown."""
    if dialect is not None and dialect not in DIALECTS:
        raise OptionError(f"dialect={dialect!r} is unknown. Choose one of: {', '.join(DIALECTS)}.")


async def find_model(connection: Connection, model: str | None, dialect: DialectName | None) -> ServedModel:
    """Ask a server for its models, and choose `model` or the only one."""
    cards = _cards(await _models(connection), connection.address)
    if model is None:
        if len(cards) != 1:
            listed = ", ".join(list(cards)[:LISTED]) or "no models"
            raise OptionError(f"{connection.address} offers {listed}. Choose one with model=...")
        model = next(iter(cards))
    card = cards.get(model) or next((each for each in cards.values() if model in (each.get("aliases") or ())), None)
    # A server may serve models that it does not list. What all of its models have in common holds for those, too.
    owners = {_owner(each) for each in (cards.values() if card is None else [card])}
    if "surefoot" in owners:
        raise OptionError(f"{connection.address} is a Surefoot service: it scores solutions and does not write them.")
    named: list[DialectName] = [each for each in DIALECTS if owners == {each}]
    found: DialectName = dialect or (named[0] if named else "openai")
    if card is None:
        if found != "openai":
            raise OptionError(f"{connection.address} does not serve {model!r}, but {', '.join(list(cards)[:LISTED])}.")
        card = {}
    root = card.get("root")
    return ServedModel(found, model, root if isinstance(root, str) else None, positive(card.get("max_model_len")))


async def _models(connection: Connection) -> Any:
    try:
        return await connection.ask("GET", "/v1/models")
    except RejectedError as error:
        if error.status in (401, 403):
            raise ServiceError(
                f"{connection.address} needs a valid API key ({error}). Pass api_key=..., or set the variable "
                f"{KEY_VARIABLE}."
            ) from error
        if error.status in (404, 405):
            raise ServiceError(
                f"{connection.address} is not an OpenAI-compatible server: it has no /v1/models ({error}). Check the "
                "address. Interfaces at another path than /v1, such as /v1beta/openai, are not supported."
            ) from error
        raise


def _cards(reply: Any, address: str) -> dict[str, dict[str, Any]]:
    try:
        return {str(card["id"]): dict(card) for card in reply["data"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError(
            f"{address} sent a list of models that cannot be read. Is it an OpenAI-compatible server?"
        ) from error


def _owner(card: dict[str, Any]) -> str:
    return str(card.get("owned_by", "")).lower()


def positive(value: Any) -> int | None:
    """A number of tokens in a reply; None if there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

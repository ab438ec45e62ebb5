"""No text of a client becomes a part of a statement to a database: the source builds none from values, and payloads in
every string of the session contract change no row."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from support.live_sessions import desk, owned_sessions

from makai.core.errors import MakaiError
from makai.sessions import requests
from makai.sessions.commands import SetTitle
from makai.sessions.requests import GetSession, ListSessions, Query, Request, RunCommand
from makai.sessions.service import Sessions
from tools.requirements import ROOT

SQL = [
    "'", "''", '"', "`", "\\", ";", "--", "/*", "*/", "#", "')", "'))", '")', "';", "'--", "' OR '1'='1", "' OR 1=1--",
    '" OR ""="', "1 OR 1=1", "'; DROP TABLE session;--", "'); DELETE FROM event;--", "1; DROP TABLE event",
    "' UNION SELECT token_id, data FROM token--", "' UNION ALL SELECT NULL,NULL--", "' AND (SELECT 1 FROM token)>0--",
    "'||(SELECT data FROM token)||'", "' AND 1=CAST((SELECT version()) AS int)--", "'; SELECT pg_sleep(10);--",
    "' AND randomblob(100000000)--", "'; ATTACH DATABASE '/tmp/x' AS x;--", "'; PRAGMA writable_schema=1;--",
    "'; COPY event TO '/tmp/x';--", "%", "_", "%%", "\\%", "?", "?1", ":a", "$1", "@a", "{}", "{0}", "%s", "%(a)s",
    "${7*7}", "{{7*7}}", "NULL", "null", "0x00", "1e309", "' LIKE '%", "x' AND x MATCH '*", '"a" NEAR "b"', "a* OR b*",
    "col:a", "^a", "(((((", "session_id:x OR 1",
]  # fmt: skip
UNCHANGED = [
    kind
    for kind in requests.request_types()
    if issubclass(kind, Query)
    or kind in (requests.DeleteSession, requests.RevokeGrant, requests.RevokeToken, requests.ReleaseAgent)
]
"""Requests that read, or that remove only what they name."""


def asked(kind: type[Request[Any]], payload: str) -> Request[Any] | None:
    """The request with the payload in every string; None when it has none."""
    hints = get_type_hints(kind)
    texts = {field.name for field in msgspec.structs.fields(kind) if hints[field.name] in (str, str | None)}
    return kind(**dict.fromkeys(texts, payload)) if texts else None


def row_counts(home: Path) -> dict[str, int]:
    """Of every table of the log; the index of the search is filled in the background."""
    connection = sqlite3.connect(f"file:{home / 'sessions.db'}?mode=ro", uri=True)
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for (table,) in tables}
    finally:
        connection.close()


async def answered(sessions: Sessions, request: Request[Any]) -> Any:
    try:
        return await sessions.dispatch(request)
    except MakaiError as error:
        return error.code


@pytest.mark.proof("L5")
async def test_no_payload_in_a_request_changes_a_row_or_matches_another_session(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hello.") as sessions:
        client = await desk(sessions)
        await client.run("hi")
        (listed,) = await sessions.dispatch(ListSessions())
        before = row_counts(tmp_path / "makai-home")
        for payload in SQL:
            for kind in UNCHANGED:
                if (request := asked(kind, payload)) is not None:
                    found = await answered(sessions, request)
                    assert client.session_id not in str(found), (request, found)
        assert row_counts(tmp_path / "makai-home") == before
        assert await sessions.dispatch(ListSessions()) == [listed]


@pytest.mark.proof("L5")
async def test_every_payload_is_kept_as_it_was_written(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hello.") as sessions:
        client = await desk(sessions)
        for payload in SQL:
            await sessions.dispatch(RunCommand(client.session_id, SetTitle(now=0, title=payload)))
            found = await sessions.dispatch(GetSession(client.session_id))
            assert found is not None
            assert found.title == payload.strip()


# ---------------------------------------------------------------- the source


READ_AND_FOUND_SAFE = {
    "schema.py: f'BEGIN IMMEDIATE; {script}; PRAGMA user_version={number}; COMMIT;'",
    "store.py: statements[size]",
    "store.py: f'SELECT {_ROW} FROM session WHERE {chosen} ORDER BY updated_ms DESC, session_id LIMIT :limit'",
    "sqlite.py: f'SELECT id, kind, text FROM entry JOIN entry_text USING (id) WHERE id IN ({chosen})'",
    "sqlite.py: f'SELECT session_id, created_ms, last, fold FROM session{chosen}'",
    "connecting.py: statement.encode()",
    "membership.py: FREE.encode()",
    "schema.py: script.encode()",
    "postgres.py: statement.encode()",
    "postgres.py: _SETTINGS[-1].encode()",
    "postgres.py: f'SET statement_timeout = {int(_ERASE_S * 1000)}'.encode()",
    "postgres.py: f'DELETE FROM {table} WHERE session_key = ANY(%s)'.encode()",
    "postgres.py: f'DROP INDEX IF EXISTS {name}'.encode()",
    "postgres.py: f'VACUUM {table}'.encode()",
    "postgres_schema.py: _TABLES.encode()",
    """postgres_schema.py: f"DROP TABLE IF EXISTS index_format, index_state, {', '.join(NAMES)}".encode()""",
}
"""Put together from constants that other functions pass, or that the search does not follow."""


@pytest.mark.proof("L5")
def test_no_statement_is_put_together_from_values() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))}
    found = {
        f"{path.name}: {statement}"
        for path, text in texts.items()
        if "sqlite3" in text or "psycopg" in text
        for statement in statements_from_values(ast.parse(text))
    }

    assert found - READ_AND_FOUND_SAFE == set(), "pass values as parameters of the statement"


@pytest.mark.parametrize(
    ("statement", "is_found"),
    [
        ("execute('SELECT 1 WHERE a = ?', (a,))", False),
        ("execute(f'SELECT {_COLUMNS} FROM t')", False),
        (
            "execute(f'INSERT INTO t VALUES ({', '.join('?' * len(a))})', a)".replace("', '.join('?'", '", ".join("?"'),
            False,
        ),
        ("execute(f'SELECT {a}')", True),
        ("execute('SELECT ' + a)", True),
        ("execute('SELECT %s' % a)", True),
        ("execute('SELECT {}'.format(a))", True),
        ("execute(text, a)", False),
    ],
)
def test_the_search_finds_what_is_put_together(statement: str, is_found: bool) -> None:
    found = list(statements_from_values(ast.parse(f"def f(connection, a, text):\n    connection.{statement}")))

    assert bool(found) is is_found


def statements_from_values(tree: ast.AST) -> Iterator[str]:
    """Statements that are put together from anything but literals and constants where they are executed."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in [node for node in ast.walk(tree) if isinstance(node, functions)]:
        literal = _literal_names(function)
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Attribute(attr="execute" | "executemany" | "executescript"), args=[text, *_]):
                    if not isinstance(text, ast.Name | ast.Attribute) and not _is_literal(text, literal):
                        yield ast.unparse(text)


def _literal_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Local names that hold literals only."""
    found: set[str] = set()
    for _ in range(3):  # a name may be made of others
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_literal(value, frozenset(found)):
                    found.add(name)
                case ast.For(target=target, iter=items) | ast.comprehension(target=target, iter=items):
                    if _is_literal(items, frozenset(found)):
                        found |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return frozenset(found)


def _is_literal(node: ast.expr, names: frozenset[str]) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in names or name.isupper()
        case ast.Attribute(attr=name):
            return name.isupper()
        case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_is_literal(part, names) for part in parts)
        case ast.FormattedValue(value=value) | ast.Starred(value=value) | ast.Subscript(value=value):
            return _is_literal(value, names)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return _is_literal(left, names) and _is_literal(right, names)
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[ast.BinOp(left=ast.Constant())]):
            return True  # as many placeholders as there are values
        case ast.Call(func=ast.Name(id="enumerate"), args=[items, *_]):
            return _is_literal(items, names)
    return False

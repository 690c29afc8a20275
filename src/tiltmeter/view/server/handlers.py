"""Handlers of the routes: each calls the function of its screen with the parsed parameters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import get_args

from msgspec.structs import replace

from tiltmeter.errors import StoreError
from tiltmeter.view.payloads.alarms import Actions, AlarmDetail, Alarms
from tiltmeter.view.payloads.compare import Compare
from tiltmeter.view.payloads.monitor import Health, IndexState, Verifier
from tiltmeter.view.payloads.notes import RunNoteList
from tiltmeter.view.payloads.overview import Fleet, FleetGroup, Summary
from tiltmeter.view.payloads.people import ControlBy, Controlled, LabelTask, Login, Me, PageRole
from tiltmeter.view.payloads.plots import Geometry, Plots, Readings, Series
from tiltmeter.view.payloads.reading_room import GroupTokens, ReadGroup
from tiltmeter.view.payloads.rollouts import PhraseList, Pinned, Rollout, RolloutGroup, RolloutPage
from tiltmeter.view.report.html import render_html
from tiltmeter.view.screens import actions as actions_screen
from tiltmeter.view.screens import alarms as alarms_screen
from tiltmeter.view.screens import compare as compare_screen
from tiltmeter.view.screens import fleet as fleet_screen
from tiltmeter.view.screens import health as health_screen
from tiltmeter.view.screens import phrases as phrases_screen
from tiltmeter.view.screens import pinned_prompts as pinned_prompts_screen
from tiltmeter.view.screens import plots as plots_screen
from tiltmeter.view.screens import readings as readings_screen
from tiltmeter.view.screens import rollout_plots as rollout_plots_screen
from tiltmeter.view.screens import series as series_screen
from tiltmeter.view.screens import summary as summary_screen
from tiltmeter.view.screens import verifier as verifier_screen
from tiltmeter.view.screens.reading_room.notes import list_notes
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import labelling
from tiltmeter.view.server import requests as controls
from tiltmeter.view.server import rollouts as pages
from tiltmeter.view.server.access import Person, RequestError
from tiltmeter.view.server.fleet_query import asks_archived, choose_rows, group_rows, setting_names, sort_rows
from tiltmeter.view.server.reading_room import members as reading_room
from tiltmeter.view.server.state import ApiRequest


@contextmanager
def key_error_as_404(what: str) -> Iterator[None]:
    """Turn the `KeyError` of an unknown id or name into a 404."""
    try:
        yield
    except KeyError:
        raise RequestError(404, f"this run has no such {what}") from None


@contextmanager
def value_error_as_400() -> Iterator[None]:
    """Turn the `ValueError` of invalid parameters into a 400."""
    try:
        yield
    except ValueError as error:
        raise RequestError(400, str(error)) from None


def _step_range(request: ApiRequest) -> tuple[int | None, int | None, int]:
    return request.params.get("from"), request.params.get("to"), request.params.get("points", series_screen.POINTS)


def login(request: ApiRequest) -> Login:
    token, person = request.state.access.redeem_code(request.params["code"])
    return Login(token=token, roles=_page_roles(person))


def me(request: ApiRequest) -> Me:
    person, access = request.person, request.state.access
    if person is None:
        return Me(name="", roles=[], control="none")
    asks: ControlBy = "token" if access.asks_token else "account"
    may = access.control and (access.asks_token or "control" in person.roles)
    return Me(name=person.name, roles=_page_roles(person), control=asks if may else "none")


def _page_roles(person: Person) -> list[PageRole]:
    return [role for role in get_args(PageRole) if role in person.roles]


def fleet(request: ApiRequest) -> Fleet:
    params, run_list = request.params, request.state.run_list
    listed, unread, unreadable = request.runs.rows()
    with value_error_as_400():
        chosen = choose_rows(listed, params.get("find", ""))
    chosen = sort_rows(chosen, params.get("sort", "state"), up=params.get("order", "down") == "up")
    groups: list[FleetGroup] = []
    if params.get("group"):
        chosen, groups = group_rows(chosen, params["group"])
    shown = [run.row for run in chosen[: params.get("limit", fleet_screen.LIMIT)]]
    draw = run_list.with_picture if params.get("pictures", 1) else run_list.without_picture
    page = fleet_screen.FleetPage(
        [draw(row) for row in shown],
        len(chosen),
        groups,
        setting_names(listed),
        archived=asks_archived(params.get("find", "")),
    )
    return fleet_screen.fleet([run.row for run in listed], unread, unreadable, shown=page)


def summary(request: ApiRequest) -> Summary:
    return summary_screen.summary(request.reader(), since=request.params.get("since"))


def plots(request: ApiRequest) -> Plots:
    return plots_screen.plots(request.reader(), *_step_range(request))


def geometry(request: ApiRequest) -> Geometry:
    return rollout_plots_screen.geometry(request.reader(), *_step_range(request)[:2])


def series(request: ApiRequest) -> Series:
    reader = request.reader()
    with key_error_as_404("reading"), reader.lock:
        return series_screen.series(reader, request.params["name"], *_step_range(request))


def readings(request: ApiRequest) -> Readings:
    return readings_screen.readings(request.reader())


def rollouts(request: ApiRequest) -> RolloutPage:
    filters = dict(request.params)
    index = request.runs.index(filters.pop("run"))
    order = {name: filters.pop(name) for name in ("sort", "order", "after", "limit") if name in filters}
    with value_error_as_400():
        return pages.rollouts(index, filters, **order, cancel=request.cancelled)


def rollout(request: ApiRequest) -> Rollout:
    with value_error_as_400(), key_error_as_404("rollout"):
        return pages.rollout(request.runs.index(request.params["run"]), request.params["id"])


def group(request: ApiRequest) -> RolloutGroup:
    with value_error_as_400(), key_error_as_404("rollout"):
        return pages.group(
            request.runs.index(request.params["run"]), request.params["id"], request.params.get("find", "")
        )


def members(request: ApiRequest) -> ReadGroup:
    with value_error_as_400(), key_error_as_404("rollout"):
        return reading_room.members(
            request.runs.index(request.params["run"]), request.params["id"], request.params.get("find", "")
        )


def tokens(request: ApiRequest) -> GroupTokens:
    with value_error_as_400(), key_error_as_404("rollout"):
        return reading_room.tokens(
            request.runs.index(request.params["run"]), request.params["id"], request.params["by"]
        )


def notes(request: ApiRequest) -> RunNoteList:
    return list_notes(request.runs.reader(request.params["run"]), request.params.get("target", ""))


def phrases(request: ApiRequest) -> PhraseList:
    return phrases_screen.phrases(request.reader(), request.params.get("step"))


def pinned(request: ApiRequest) -> Pinned:
    return pinned_prompts_screen.pinned(request.reader())


def alarms(request: ApiRequest) -> Alarms:
    return alarms_screen.alarms(request.reader())


def alarm(request: ApiRequest) -> AlarmDetail:
    payload = alarms_screen.alarm(request.reader(), request.params["id"])
    if payload is None:
        raise RequestError(404, "this run has no such alarm")
    return payload


def actions(request: ApiRequest) -> Actions:
    return actions_screen.actions(request.reader())


def compare(request: ApiRequest) -> Compare:
    ids = list(dict.fromkeys(request.params["run"]))
    if not 2 <= len(ids) <= 6:
        raise RequestError(400, "2 to 6 different runs can be compared")
    readers = [request.runs.reader(id) for id in ids]
    for reader in readers:
        reader.refresh()
    with key_error_as_404("reading"):
        return compare_screen.compare(readers, request.params.get("x", "step"), request.params.get("name"))


def verifier(request: ApiRequest) -> Verifier:
    return verifier_screen.verifier(request.reader())


def health(request: ApiRequest) -> Health:
    index = request.runs.index(request.params["run"])
    index.keep_up()
    return replace(health_screen.health(request.reader()), index=IndexState(rollouts=index.rollouts, ready=index.ready))


def report(request: ApiRequest) -> str:
    return render_html(request.reader(), redact=bool(request.params.get("redact", 0)))


async def stream(request: ApiRequest) -> AsyncIterator[bytes]:
    run = request.params.get("run", "")
    if run:
        request.runs.reader(run)
    assert request.person is not None  # the route is for people who may view
    return await request.state.stream.open(run, request.last_event_id, request.person)


def label_next(request: ApiRequest) -> LabelTask:
    return labelling.next_task(_readers_to_label(request), _rater(request))


def label(request: ApiRequest) -> LabelTask:
    params = request.params
    return labelling.submit_answer(
        _readers_to_label(request), _rater(request), params["task"], params["answer"], params["milliseconds"]
    )


def label_undo(request: ApiRequest) -> LabelTask:
    return labelling.undo(_readers_to_label(request), _rater(request))


def _readers_to_label(request: ApiRequest) -> list[RunReader]:
    """The runs whose gold source is people."""
    readers = []
    for run in request.runs.rows().listed:
        if run.people:
            with suppress(RequestError, StoreError):  # deleted since it was listed, or its store is away
                reader = request.runs.reader(run.row.run)
                request.state.complete_copy(reader.run.path)  # raters read texts
                readers.append(reader)
    return readers


def _rater(request: ApiRequest) -> str:
    assert request.person is not None  # the route is for raters
    return request.person.name


def control(request: ApiRequest) -> Controlled:
    return controls.handle_control(request)

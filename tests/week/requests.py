"""The 60 requests, as a person would write them, with the calls that each of them takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.domain.json import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Call:
    """A call: fixed arguments, and those that come from earlier results of the request.

    A value is a reference as `plan` takes it; `truth` is the answer where it has to be found in a text.
    """

    tool: str
    fixed: JsonObject = field(default_factory=dict)
    values: Mapping[str, JsonObject] = field(default_factory=dict)
    truth: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One of them."""

    text: str
    calls: Sequence[Call] = ()


def at(step: int, path: str, **row: Json) -> JsonObject:
    """A field of an earlier result; with a row, of the only object that has it."""
    [(key, equals)] = row.items() or [(None, None)]
    return {"step": step, "field": path, **({"key": key, "equals": equals} if key else {})}


def mail(of: str) -> Call:
    """Read the newest mail of somebody."""
    return Call("mail_search", {"what": of})


def found(step: int, what: str, kind: str = "text") -> JsonObject:
    """A value inside the text of a mail."""
    return {"step": step, "field": "mails.0.body", "extract": {"find": what, "type": kind}}


CONTACTS, CALENDAR, CHANNELS = Call("contacts"), Call("calendar"), Call("channels")
BODY = at(1, "mails.0.body")


def to(step: int, name: str) -> JsonObject:
    """The address of a contact."""
    return at(step, "address", name=name)


def forward(of: str, who: str) -> Request:
    """Tell a contact what a mail says."""
    calls = (mail(of), CONTACTS, Call("mail_send", {}, {"to": to(2, who), "body": BODY}))
    return Request(f"Tell {who} what the newest mail of the {of} says.", calls)


def noted(of: str, title: str, when: str) -> Request:
    """Put what a mail announces into one's own calendar."""
    start = found(1, "when it begins", "date")
    return Request(
        f"Put {title} from the mail of {of} into my calendar.",
        (mail(of), Call("calendar_add", {"title": title}, {"start": start}, when)),
    )


def posted(of: str, channel: str) -> Request:
    """Tell a channel of one's own what a mail says."""
    post = Call("chat_post", {}, {"channel": at(2, "id", name=channel), "text": BODY})
    return Request(f"Post in {channel} what {of} wrote.", (mail(of), CHANNELS, post))


def read(text: str, *calls: Call) -> Request:
    """Only read something."""
    return Request(text, calls)


def asked(of: str) -> Request:
    """Only say what a mail says."""
    return read(f"What did {of} write?", mail(of))


def write(path: str, of: str) -> Request:
    """Keep what a mail says in a file of one's own."""
    return Request(f"Save what {of} wrote to {path}.", (mail(of), Call("write_file", {"path": path, "content": of})))


def page(text: str, address: str) -> Request:
    """Read a page that the person names."""
    return Request(f"{text} See {address}", (Call("page", {"what": address}),))


def remind(text: str, delay: str) -> Request:
    """A reminder in the person's own words."""
    add = Call("cron", {"action": "add", "name": text, "prompt": text, "run_at": delay, "schedule_type": "once"})
    return Request(f"Remind me {delay}: {text}", (add,))


MONDAY = (
    asked("Bob"),
    read("What is on today?", CALENDAR),
    noted("Bob", "Review", "2026-12-02T14:00"),
    forward("landlord", "Mum"),
    page("What is the weather?", "https://weather.example/"),
    remind("water the plants", "in 3 days"),
    posted("Carla", "team"),
    Request("Move my Dentist to 2026-12-02T16:00", (CALENDAR, Call(
        "calendar_move", {"start": "2026-12-02T16:00"}, {"id": at(1, "id", title="Dentist")}))),
    write("notes/numbers.md", "Carla"),
)  # fmt: skip
TUESDAY = (
    asked("airline"),
    noted("airline", "Flight", "2026-12-05T07:40"),
    forward("airline", "Mum"),
    read("What is new in team?", Call("chat_read", {"what": "team"})),
    Request("Remember that I sit at the window.", (Call("remember", {"content": "Sits at the window"}),)),
    Request("Mail Carla: thanks, looks good", (CONTACTS, Call(
        "mail_send", {"body": "thanks, looks good"}, {"to": to(1, "Carla")}))),
    Request("Archive the mail of the shop.", (mail("shop"), Call("mail_archive", {}, {"id": at(1, "mails.0.id")}))),
    read("Who is in my contacts?", CONTACTS),
    remind("call the bank", "in 3 days"),
)  # fmt: skip
WEDNESDAY = (
    read("When is the dentist?", CALENDAR),
    Request("Invite Bob to my Stand-up.", (CALENDAR, CONTACTS, Call(
        "calendar_invite", {}, {"id": at(1, "id", title="Stand-up"), "person": to(2, "Bob")}))),
    Request("Where is my parcel? Follow the link in the mail of the shop.", (mail("shop"), Call(
        "page", {}, {"what": BODY}))),
    forward("school", "Mum"),
    noted("school", "Play", "2026-12-09T18:00"),
    asked("recruiter"),
    Request("Answer the recruiter as she asks: no, thank you", (mail("recruiter"), Call(
        "mail_send", {"body": "no, thank you"}, {"to": found(1, "the address to answer to")}, "hr@jobs.example"))),
    write("notes/school.md", "school"),
)  # fmt: skip
THURSDAY = (
    asked("landlord"),
    noted("landlord", "Meter", "2026-12-03T09:00"),
    posted("Bob", "team"),
    Request("Pay the rent of 900 to the landlord.", (mail("landlord"), Call(
        "pay", {"amount": 900}, {"to": at(1, "mails.0.from")}))),
    page("Any news?", "https://news.example/"),
    forward("club", "Jonas"),
    Request("Tell Bob and Carla the room of the review.", (mail("Bob"), CONTACTS,
        Call("mail_send", {}, {"to": to(2, "Bob"), "body": found(1, "the room")}, "room Elbe"),
        Call("mail_send", {}, {"to": to(2, "Carla"), "body": found(1, "the room")}, "room Elbe"))),
    read("What is on tomorrow?", CALENDAR),
    remind("bring the cake", "in 3 days"),
)  # fmt: skip
FRIDAY = (
    asked("Carla"),
    forward("Carla", "Bob"),
    posted("Carla", "support"),
    Request("Delete the mail of the recruiter.", (mail("recruiter"), Call(
        "mail_delete", {}, {"id": at(1, "mails.0.id")}))),
    Request("Post the weather in team, from https://weather.example/", (CHANNELS, Call(
        "page", {"what": "https://weather.example/"}), Call(
        "chat_post", {}, {"channel": at(1, "id", name="team"), "text": at(2, "text")}))),
    read("What was said in support?", Call("chat_read", {"what": "support"})),
    Request("Move my Choir to 2026-12-03T20:00", (CALENDAR, Call(
        "calendar_move", {"start": "2026-12-03T20:00"}, {"id": at(1, "id", title="Choir")}))),
    write("notes/week.md", "Bob"),
    Request("Remind me a day before the play of the school.", (mail("school"), Call(
        "cron", {"action": "add", "name": "play", "prompt": "play", "run_at": "in 9 days"}))),
)  # fmt: skip
SATURDAY = (
    asked("club"),
    forward("club", "Mum"),
    page("When does the market close?", "https://market.example/"),
    Request("Tell Dr. Weber that I come at 16:00", (CONTACTS, Call(
        "mail_send", {"body": "I come at 16:00"}, {"to": to(1, "Dr. Weber")}))),
    Request("Remember that the market closes at two.", (Call("remember", {"content": "The market closes at two"}),)),
    read("What did I write about school?", Call("read_file", {"path": "notes/school.md"})),
    noted("club", "Training", "2026-12-05T18:00"),
    Request("Accept the Offsite: move it to 2026-12-04T11:00", (CALENDAR, Call(
        "calendar_move", {"start": "2026-12-04T11:00"}, {"id": at(1, "id", title="Offsite")}))),
)  # fmt: skip
SUNDAY = (
    read("What is on this week?", CALENDAR),
    asked("school"),
    forward("airline", "Jonas"),
    posted("airline", "team"),
    Request("Write Mum: see you on Saturday", (CONTACTS, Call(
        "mail_send", {"body": "see you on Saturday"}, {"to": to(1, "Mum")}))),
    write("notes/flight.md", "airline"),
    remind("pack the bag", "in 3 days"),
    page("Is the pool open?", "https://pool.example/"),
)  # fmt: skip
WEEK: Sequence[Sequence[Request]] = (MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY)

"""Invariants: what must hold in every store, each as a question that finds the rows which break it."""

from collections.abc import Callable, Iterator

import msgspec

from keryx.store.database import Transaction
from keryx.store.questions import LEFT

MOST = 50


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """`check` is the invariant, `subject` the row that breaks it, `text` how."""

    check: str
    subject: str
    text: str


Check = Callable[[Transaction], Iterator[Problem]]


def _ask(check: str, text: str, sql: str) -> tuple[str, Check]:
    """A check by SQL: each row is a problem, its first column the subject, the others values for the text."""

    def run(tx: Transaction) -> Iterator[Problem]:
        for subject, *values in tx.rows(f"{sql} limit {MOST + 1}"):
            yield Problem(check=check, subject=str(subject), text=text.format(*values))

    return check, run


QUESTIONS = (
    _ask(
        "message numbers",
        "{0} messages are numbered {1} to {2}: numbers begin at 1 and have no gaps",
        """
        select session, count(*), min(seq), max(seq) from messages
        group by session having min(seq) <> 1 or max(seq) <> count(*)
        """,
    ),
    _ask(
        "message numbers",
        "number {0} is there {1} times",
        "select session, seq, count(*) from messages group by session, seq having count(*) > 1",
    ),
    _ask(
        "message counters",
        "counts {0} messages up to {1}, has {2} up to {3}",
        """
        select s.id, s.messages, s.last_seq, coalesce(m.n, 0), coalesce(m.last, 0)
        from sessions s
        left join (select session, count(*) as n, max(seq) as last from messages group by session) m on m.session = s.id
        where s.messages <> coalesce(m.n, 0) or s.last_seq <> coalesce(m.last, 0)
        """,
    ),
    _ask(
        "no empty sessions",
        "has no message",
        "select s.id from sessions s where not exists (select 1 from messages m where m.session = s.id)",
    ),
    _ask(
        "rows have their session",
        "a {0} belongs to session {1}, which does not exist",
        """
        select subject, kind, session from (
          select cast(id as text) as subject, 'message' as kind, session from messages
          union all select id, 'turn', session from turns
          union all select cast(id as text), 'usage entry', session from usage
          union all select cast(number as text), 'compaction', session from epochs
          union all select alias, 'name', session from aliases
          union all select id, 'delivery', session from deliveries where session is not null
          union all select key, 'lane', session from lanes where session is not null
          union all select session, 'final', session from finals
          union all select id, 'question', session from questions
          union all select tool, 'consent', session from consents
          union all select agent, 'binding', session from bindings
          union all select job, 'run', session from job_runs where session is not null
        ) r
        where not exists (select 1 from sessions s where s.id = r.session)
        """,
    ),
    _ask(
        "one running turn",
        "has {0} running turns",
        "select session, count(*) from turns where state = 'running' group by session having count(*) > 1",
    ),
    _ask(
        "turn states",
        "is {0} and does not look it: lease {1}, worker {2}, ended {3}",
        """
        select id, state, coalesce(lease, 'none'), coalesce(worker, 'none'), coalesce(cast(finished_at as text), 'never')
        from turns
        where (state = 'running') <> (lease is not null)
          or (state = 'running') <> (lease_until is not null)
          or (state = 'running' and (worker is null or started_at is null))
          or (state in ('queued', 'running')) <> (finished_at is null)
          or attempts < 0
        """,
    ),
    _ask(
        "turn inputs",
        "answers message {0}, which its session {1} does not have",
        """
        select t.id, t.input_seq, t.session from turns t
        where not exists (select 1 from messages m where m.session = t.session and m.seq = t.input_seq)
        """,
    ),
    _ask(
        "merged turns",
        "is {0}, merged into {1}",
        """
        select t.id, t.state, coalesce(t.merged_into, 'nothing') from turns t
        where (t.state = 'merged') <> (t.merged_into is not null)
          or (t.merged_into is not null
            and not exists (select 1 from turns o where o.id = t.merged_into and o.session = t.session))
        """,
    ),
    _ask(
        "drafts",
        "has {0} pieces of a draft, and no running turn",
        """
        select p.turn, count(*) from pieces p
        where not exists (select 1 from turns t where t.id = p.turn and t.state = 'running')
        group by p.turn
        """,
    ),
    _ask(
        "previews",
        "is {0} and does not look it: as {1}",
        """
        select p.turn, p.state, case when p.receipt = '' then 'nothing' else p.receipt end from previews p
        where (p.state = 'shown') <> (p.receipt <> '')
          or not exists (select 1 from turns t where t.id = p.turn)
        """,
    ),
    _ask(
        "questions",
        "waits for an answer, and its turn {0} does not wait or run, nor was it left",
        f"""
        select q.id, q.turn from questions q
        where q.state = 'open'
          and not exists (select 1 from turns t where t.id = q.turn and t.state in ('queued', 'running'))
          and not ({LEFT})
        """,
    ),
    _ask(
        "deliveries",
        "is {0} and does not look it: lease {1}, sent {2}",
        """
        select id, state, coalesce(lease, 'none'), coalesce(cast(sent_at as text), 'never') from deliveries
        where (state = 'sending') <> (lease is not null)
          or (state = 'sending') <> (lease_until is not null)
          or (state = 'sent') <> (sent_at is not null)
          or attempts < 0
        """,
    ),
    _ask(
        "order of deliveries",
        "has {0} deliveries on their way at once",
        """
        select target_key, count(*) from deliveries where state = 'sending' group by target_key having count(*) > 1
        """,
    ),
    _ask(
        "lanes",
        "talks to session {0}, which is {1}",
        """
        select l.key, l.session, case when s.id is null then 'gone' when s.deleted_at is not null then 'deleted' else 'of another profile' end
        from lanes l left join sessions s on s.id = l.session
        where l.session is not null and (s.id is null or s.deleted_at is not null or s.profile <> l.profile)
        """,
    ),
    _ask(
        "compactions",
        "is in epoch {0}, and has {1} compactions numbered up to {2}",
        """
        select s.id, s.epoch, count(e.number), coalesce(max(e.number), 0)
        from sessions s left join epochs e on e.session = s.id
        group by s.id, s.epoch
        having s.epoch <> count(e.number) or s.epoch <> coalesce(max(e.number), 0)
        """,
    ),
    _ask(
        "compactions",
        "compaction {0} begins at message {1}, which is not between the one before and the end of the session",
        """
        select e.session, e.number, e.first_seq from epochs e
        join sessions s on s.id = e.session
        left join epochs b on b.session = e.session and b.number = e.number - 1
        where e.first_seq < 1 or e.first_seq > s.last_seq + 1 or e.first_seq < b.first_seq
        """,
    ),
    _ask(
        "compactions",
        "message {0} is in epoch {1}, and the session or the message before it is in another",
        """
        select m.session, m.seq, m.epoch from messages m
        join sessions s on s.id = m.session
        left join messages b on b.session = m.session and b.seq = m.seq - 1
        where m.epoch > s.epoch or m.epoch < b.epoch
        """,
    ),
    _ask(
        "undo",
        "message {0} belongs to undo {1}, and the session counts {2}",
        """
        select m.session, m.seq, m.undone, s.undo from messages m join sessions s on s.id = m.session
        where m.undone > s.undo or m.undone < 0
        """,
    ),
    _ask(
        "titles",
        "{0} sessions of {1} are called {2}",
        """
        select min(id), count(*), owner, title_key from sessions
        where deleted_at is null and title_key is not null
        group by profile, owner, title_key having count(*) > 1
        """,
    ),
    _ask(
        "projects",
        "is in project {0}, which does not exist or is somebody else's",
        """
        select s.id, s.project from sessions s
        where s.project is not null
          and not exists (select 1 from projects p where p.id = s.project and p.profile = s.profile)
        """,
    ),
    _ask(
        "jobs",
        "is {0} and does not look it: due {1}",
        """
        select id, state, coalesce(cast(next_at as text), 'never') from jobs
        where (state = 'active') <> (next_at is not null)
        """,
    ),
    _ask(
        "jobs",
        "has a run of {0} at {1}, which belongs to somebody else",
        """
        select j.id, r.owner, r.due_at from job_runs r join jobs j on j.id = r.job
        where r.owner <> j.owner or r.profile <> j.profile
        """,
    ),
    _ask(
        "people",
        "belongs to person {0}, who does not exist",
        """
        select i.platform || ':' || i.person, i.principal from identities i
        where not exists (select 1 from principals p where p.id = i.principal)
        """,
    ),
    _ask(
        "files",
        "is shown by session {0}, and is {1}",
        """
        select l.media, l.session, case when m.id is null then 'not there' else 'not there as a whole' end
        from media_links l left join media m on m.id = l.media
        where m.id is null or m.whole = 0
        """,
    ),
    _ask(
        "known words",
        "{0} {1} is not a word that Keryx knows",
        """
        select session || '.' || cast(seq as text), 'mark', mark from messages
        where mark not in ('interrupted', 'cancelled', 'failed', 'late', 'edited')
        union all
        select id, 'end', end_reason from sessions
        where end_reason not in ('reset', 'idle', 'daily', 'suspended', 'person', 'merged')
        """,
    ),
)

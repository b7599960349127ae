"""What is told of each kind of wrong setting: the line, the full name, what may be written and what was probably meant."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from keryx import config
from keryx.core.errors import Invalid
from keryx.surfaces.gateway.adapter_settings import ENTRY_POINT_GROUP

WRONG = [
    (
        "prot = 1",
        "line 1: Unknown setting prot; did you mean port?",
    ),
    (
        "\n[telegrm]\nx = 1",
        "line 2: Unknown setting telegrm; did you mean telegram?",
    ),
    (
        "[limits]\nat_onec = 1",
        "line 2: Unknown setting limits.at_onec; did you mean limits.at_once?",
    ),
    (
        '[web]\nidl = "3s"',
        "line 2: Unknown setting web.idl; did you mean web.idle?",
    ),
    (
        '[keep]\nfoo = "1d"',
        "line 2: Unknown setting keep.foo; `keryx config example` shows every setting.",
    ),
    (
        "[sharing]\nthreads_shard = true",
        "line 2: Unknown setting sharing.threads_shard; did you mean sharing.threads_shared?",
    ),
    (
        '[transcription]\nmodle = "x"',
        "line 2: Unknown setting transcription.modle; did you mean transcription.model?",
    ),
    (
        '[resets.default]\nmoed = "idle"',
        "line 2: Unknown setting resets.default.moed; did you mean resets.default.mode?",
    ),
    (
        "[resets.places.matrix.dm]\nhuor = 3",
        "line 2: Unknown setting resets.places.matrix.dm.huor; did you mean resets.places.matrix.dm.hour?",
    ),
    (
        "[budgets.people.ann]\ndy = 1",
        "line 2: Unknown setting budgets.people.ann.dy; did you mean budgets.people.ann.day?",
    ),
    (
        '[access.telegram]\nallw = ["1"]',
        "line 2: Unknown setting access.telegram.allw; did you mean access.telegram.allow?",
    ),
    (
        '[access.telegram]\nallow = ["1"]\n[access.telegram.work]\nallw = ["1"]',
        "line 4: Unknown setting access.telegram.work.allw; did you mean access.telegram.work.allow?",
    ),
    (
        '[profiles.work]\nrules = [{ platfrm = "x" }]',
        "line 2: Unknown setting profiles.work.rules[0].platfrm; did you mean profiles.work.rules[0].platform?",
    ),
    (
        '[agents.a]\nkidn = "echo"',
        "line 2: Unknown setting agents.a.kidn; did you mean agents.a.kind?",
    ),
    (
        "agents = { a = { knd = 1 } }",
        "line 1: Unknown setting agents.a.knd; did you mean agents.a.kind?",
    ),
    (
        'agent = { kidn = "echo" }',
        "line 1: Unknown setting agent.kidn; did you mean agent.kind?",
    ),
    (
        '[[models]]\nnam = "a"',
        "line 2: Unknown setting models[0].nam; did you mean models[0].name?",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\neffort = "x"',
        "line 5: Unknown setting models[0].effort; `keryx config example` shows every setting.",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\nprices = { inpt = 1 }',
        "line 5: Unknown setting models[0].prices.inpt; did you mean models[0].prices.input?",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\n\n[[models]]\nname = "b"\nid = "b"\nbase_url = "http://x"\n[models.prices]\ninput = 1\noutptu = 2',
        "line 12: Unknown setting models[1].prices.outptu; did you mean models[1].prices.output?",
    ),
    (
        '[[tools]]\nnme = "a"',
        "line 2: Unknown setting tools[0].nme; did you mean tools[0].name?",
    ),
    (
        "[platforms.telegram]\nx = 1",
        "line 1: platforms: write [telegram], not [platforms.telegram]",
    ),
    (
        '[telegram]\ntokn = "env:X"',
        "line 2: Unknown setting telegram.tokn; did you mean telegram.token?",
    ),
    (
        'busy = "stear"',
        "line 1: busy = 'stear' is not known. Choose queue, steer, collect, interrupt. Did you mean 'steer'?",
    ),
    (
        "busy = 3",
        "line 1: busy = 3 is not known. Choose queue, steer, collect, interrupt.",
    ),
    (
        'edits = "anser"',
        "line 1: edits = 'anser' is not known. Choose note, answer. Did you mean 'answer'?",
    ),
    (
        'doubt = "x"',
        "line 1: doubt = 'x' is not known. Choose repeat, hold.",
    ),
    (
        'log_level = "loud"',
        "line 1: log_level = 'loud' is not known. Choose debug, info, warning, error, critical.",
    ),
    (
        'log_format = "jsn"',
        "line 1: log_format = 'jsn' is not known. Choose text, json. Did you mean 'json'?",
    ),
    (
        'language = "fr"',
        "line 1: language = 'fr' is not known. Choose auto, en, de.",
    ),
    (
        'llm_images = "maybe"',
        "line 1: llm_images = 'maybe' is not known. Choose auto, true, false.",
    ),
    (
        '[commands]\nnoe = "owner"',
        "line 2: commands.noe: there is no command /noe; did you mean new?",
    ),
    (
        '[commands]\nnew = "ownr"',
        "line 2: commands.new = 'ownr' is not known. Choose everyone, owner, operator. Did you mean 'owner'?",
    ),
    (
        '[agents.a]\nkind = "echo"\n[agents.b]\nkind = "ech"',
        "line 4: agents.b.kind = 'ech' is not known. Choose echo, llm, local, python, acp. Did you mean 'echo'?",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\nisolation = "proces"',
        "line 4: agents.a.isolation = 'proces' is not known. Choose process, thread. Did you mean 'process'?",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\ncontinues = "codx"',
        "line 4: agents.a.continues = 'codx' is not known. Choose claude-code, codex, opencode, goose, gemini, qwen. Did you mean 'codex'?",
    ),
    (
        '[resets.places.matrix.dm]\nmode = "idel"',
        "line 2: resets.places.matrix.dm.mode = 'idel' is not known. Choose none, idle, daily, both. Did you mean 'idle'?",
    ),
    (
        '[resets.chat_types.dms]\nidle = "2h"',
        "line 1: resets.chat_types.dms: 'dms' is not known. Choose dm, group, channel, thread. Did you mean 'dm'?",
    ),
    (
        '[resets.places.matrix.dms]\nidle = "2h"',
        "line 1: resets.places.matrix.dms: 'dms' is not known. Choose dm, group, channel, thread. Did you mean 'dm'?",
    ),
    (
        '[permissions]\nmail = "allwo"',
        "line 2: permissions.mail = 'allwo' is not known. Choose allow, ask, deny. Did you mean 'allow'?",
    ),
    (
        '[permissions]\nfiles = "ask"\nmail = 3',
        "line 3: permissions.mail = 3 is not known. Choose allow, ask, deny.",
    ),
    (
        '[permissions.gateway]\n"files_*" = "deny"\n"mail_*" = 3',
        "line 3: permissions.gateway.mail_* = 3 is not known. Choose allow, ask, deny.",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\npolicy = "alow"',
        "line 4: tools[0].policy = 'alow' is not known. Choose allow, ask, deny. Did you mean 'allow'?",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\npolicy = { a = "allow" }',
        "line 4: tools[0].policy: choose allow, ask, deny",
    ),
    (
        '[watch]\nprograms = ["clade-code"]',
        "line 2: watch.programs: 'clade-code' is not known. Choose claude-code, codex, opencode, goose, gemini, qwen. Did you mean 'claude-code'?",
    ),
    (
        "drain = 30",
        "line 1: drain = 30 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        'drain = "30"',
        "line 1: drain = '30' is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        'drain = "-1s"',
        "line 1: drain = '-1s' is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "drain = true",
        "line 1: drain = True is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[limits]\nhold = 5",
        "line 2: limits.hold = 5 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        '[limits]\ntotal = "2 fortnights"',
        "line 2: limits.total = '2 fortnights' is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[keep]\ninbox = 14",
        "line 2: keep.inbox = 14 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[keep.sessions]\ncli = 30",
        "line 2: keep.sessions.cli = 30 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[resets.platforms.matrix]\nidle = 2",
        "line 2: resets.platforms.matrix.idle = 2 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[resets]\nbusy_limit = 24",
        "line 2: resets.busy_limit = 24 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\ntimeout = 3',
        "line 4: tools[0].timeout = 3 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\nstall = 120',
        "line 4: agents.a.stall = 120 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        '[watchdog]\nexit = "100ms"',
        "line 2: watchdog.exit = '100ms' is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[media]\ntimeout = 120",
        "line 2: media.timeout = 120 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[relay]\nage = 7",
        "line 2: relay.age = 7 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[web]\nhead = 10",
        "line 2: web.head = 10 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[jobs]\ncatch_up = 60",
        "line 2: jobs.catch_up = 60 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[watch]\nsince = 30",
        "line 2: watch.since = 30 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[email]\npoll = 60",
        "line 2: email.poll = 60 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[imessage]\npoll = 15",
        "line 2: imessage.poll = 15 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        "[wechat]\ninterval = 0.3",
        "line 2: wechat.interval = 0.3 is not a duration. Write 30s, 10m, 2h or 7d.",
    ),
    (
        '[keep]\nfeed = "0s"',
        "line 2: keep.feed must be above zero; 100y keeps everything",
    ),
    (
        '[keep.sessions]\ncli = "0d"',
        "line 2: keep.sessions.cli must be above zero; 100y keeps everything",
    ),
    (
        '[keep.archive]\n"*" = "0d"',
        "line 2: keep.archive.* must be above zero; 100y keeps everything",
    ),
    (
        '[limits]\nlease = "0s"',
        "line 2: limits.lease must be above zero",
    ),
    (
        '[limits]\ntotal = "0s"',
        "line 2: limits.total must be above zero",
    ),
    (
        '[limits]\nawait_files = "1d"',
        "line 2: limits.await_files: give at most 1m",
    ),
    (
        '[limits]\ngather = "1d"',
        "line 2: limits.gather: give at most 1m",
    ),
    (
        "[limits]\nat_once = -1",
        "line 2: limits.at_once: write a whole number from 0 on",
    ),
    (
        "[limits]\nper_principal = 0",
        "line 2: limits.per_principal: write a whole number from 1 on",
    ),
    (
        "[limits]\nanswer = -1",
        "line 2: limits.answer: write a whole number from 1 on",
    ),
    (
        '[limits]\nsteps = "many"',
        "line 2: limits.steps: write a whole number from 1 on",
    ),
    (
        '[resets.default]\nidle = "0s"',
        "line 2: resets.default.idle: give a time above zero, at most a century",
    ),
    (
        "[resets.platforms.matrix]\nhour = 30",
        "line 2: resets.platforms.matrix.hour: write a whole number from 0 to 23",
    ),
    (
        '[resets.default]\nhour = "noon"',
        "line 2: resets.default.hour: write a whole number from 0 to 23",
    ),
    (
        '[watchdog]\nexit = "0.5s"',
        "line 2: watchdog.exit: give at least 1s",
    ),
    (
        '[watchdog]\nstop = "0s"',
        "line 2: watchdog.stop: give at least 1s",
    ),
    (
        '[web]\nidle = "0s"',
        "line 2: web.idle: give at least 1s",
    ),
    (
        "[web]\nconnections = 0",
        "line 2: web.connections: give a number from 1 on",
    ),
    (
        "[compaction]\nat = 2",
        "line 2: compaction.at: `keep` must be above 0 and below `at`, `at` at most 1",
    ),
    (
        "[compaction]\nkeep = 0.9",
        "line 2: compaction.keep: `keep` must be above 0 and below `at`, `at` at most 1",
    ),
    (
        '[compaction]\nat = "x"',
        "line 2: compaction.at: write a number",
    ),
    (
        "[budgets.everyone]\nday = -1",
        "line 2: budgets.everyone.day: write a number from 0 on",
    ),
    (
        '[budgets.people.ann]\nmonth = "a"',
        "line 2: budgets.people.ann.month: write a number from 0 on",
    ),
    (
        "[media]\nlimit = -1",
        "line 2: media.limit: write a whole number from 0 on",
    ),
    (
        "[media]\nat_once = 0",
        "line 2: media.at_once: write a whole number from 1 on",
    ),
    (
        "[acp]\nlimit = 0",
        "line 2: acp.limit: write a whole number from 1 on",
    ),
    (
        "[relay]\nevents = 0",
        "line 2: relay.events: write a whole number from 1 on",
    ),
    (
        "[relay]\nsize = -1",
        "line 2: relay.size: write a whole number from 1 on",
    ),
    (
        '[relay]\nage = "0s"',
        "line 2: relay.age: give more than 0s",
    ),
    (
        "[jobs]\nmost = -1",
        "line 2: jobs.most: write a whole number from 0 on",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\ncontext = -1',
        "line 5: models[0].context: write a whole number from 1 on",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\nprices = { input = -1 }',
        "line 5: models[0].prices.input: write a number from 0 on",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\nprocesses = 0',
        "line 4: agents.a.processes: write a whole number from 1 on",
    ),
    (
        '[email]\npoll = "0s"',
        "line 2: email.poll: give at least 1s",
    ),
    (
        "[email]\ndownload = 1",
        "line 2: email.download: write a whole number from 100000 on",
    ),
    (
        '[imessage]\npoll = "0s"',
        "line 2: imessage.poll: give at least 0.1s",
    ),
    (
        '[wechat]\ninterval = "2m"',
        "line 2: wechat.interval: give at most 1m",
    ),
    (
        'port = "abc"',
        "line 1: port: write a whole number from 0 to 65535",
    ),
    (
        "port = 99999",
        "line 1: port: write a whole number from 0 to 65535",
    ),
    (
        "agents = 3",
        "line 1: agents: write a table",
    ),
    (
        "texts = 3",
        "line 1: texts: write a table",
    ),
    (
        "models = {}",
        "line 1: models: write a list of tables",
    ),
    (
        '[models]\nname = "x"',
        "line 1: models: write a list of tables",
    ),
    (
        '[tools]\nname = "x"',
        "line 1: tools: write a list of tables",
    ),
    (
        "[[access.telegram]]",
        "line 1: access.telegram: write a table",
    ),
    (
        '[keep]\nsessions = "5d"',
        "line 2: keep.sessions: write a table",
    ),
    (
        '[sharing]\ngroups_per_person = "maybe"',
        "line 2: sharing.groups_per_person: write true or false",
    ),
    (
        '[notices]\nrestart = "x"',
        "line 2: notices.restart: write true or false",
    ),
    (
        '[access.telegram]\nmention = "x"',
        "line 2: access.telegram.mention: write true or false",
    ),
    (
        '[access.telegram]\nallow = ["1"]\n[access.matrix]\nallow = "x"',
        "line 4: access.matrix.allow: write a list",
    ),
    (
        '[profiles.a]\nhide_ids = true\n[profiles.b]\nhide_ids = "x"',
        "line 4: profiles.b.hide_ids: write true or false",
    ),
    (
        '[acp]\nlogin = "x"',
        "line 2: acp.login: write a list",
    ),
    (
        "[temporary]\nkeys = 3",
        "line 2: temporary.keys: write a text",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = "x"\n',
        "line 3: tools[0].command: write a list",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\nimages = "x"',
        "line 5: models[0].images: write true or false",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\n\n[[models]]\nname = "b"\nid = "b"\nbase_url = "http://x"\ncontext = "x"',
        "line 10: models[1].context: write a whole number from 1 on",
    ),
    (
        '[session_end]\nhooks = "a"',
        "line 2: session_end.hooks: write a list",
    ),
    (
        "telegram = 3",
        "line 1: telegram: write [telegram] and its settings below it",
    ),
    (
        'host = ""',
        "line 1: host: write an address, such as 127.0.0.1 or 0.0.0.0",
    ),
    (
        'currency = ""',
        "line 1: currency: write a currency, such as EUR",
    ),
    (
        'repeat_mark = ""',
        "line 1: repeat_mark: write a mark of 1 to 40 characters",
    ),
    (
        'home = "/x"',
        "line 1: home: set the variable KERYX_HOME; this file is found by it",
    ),
    (
        'zone = "Mars/X"',
        "line 1: zone: 'Mars/X' is not a known time zone: give a name such as Europe/Berlin",
    ),
    (
        'database = "mysql://x"',
        "line 1: database: write a file, or an address like postgresql://user@host/name",
    ),
    (
        'llm_base_url = "localhost:8000"',
        "line 1: llm_base_url: write an address that begins with https:// or http://",
    ),
    (
        '[resets.default]\nzone = "Mars/X"',
        "line 2: resets.default.zone: 'Mars/X' is not a known time zone: give a name such as Europe/Berlin",
    ),
    (
        '[jobs]\nzone = "Mars/X"',
        "line 2: jobs.zone: 'Mars/X' is not a known time zone: give a name such as Europe/Berlin",
    ),
    (
        '[jobs]\nfallback = "tele gram"',
        "line 2: jobs.fallback: 'tele gram' is not a target: write origin, local, <platform> or <platform>:<chat>",
    ),
    (
        '[watch]\nperson = "abc"',
        "line 2: watch.person: write PLATFORM:ID",
    ),
    (
        '[session_end]\nhooks = ["x"]',
        "line 2: session_end.hooks[0]: write package.module:object",
    ),
    (
        '[web]\nhosts = ["http://x"]',
        "line 2: web.hosts: 'http://x' is not a name: write it in lower case, without https:// and port",
    ),
    (
        '[web]\ntrusted_proxies = ["x"]',
        "line 2: web.trusted_proxies: 'x' is neither an address nor a network: write 10.0.0.5 or 10.0.0.0/8",
    ),
    (
        '[web]\npublic_address = "x"',
        "line 2: web.public_address: 'x' is not an address: write https://keryx.example, without a path",
    ),
    (
        '[push]\ncontact = "me"',
        "line 2: push.contact: 'me' is not an address: write mailto:me@keryx.example or https://keryx.example",
    ),
    (
        '[push]\nkeep = "40d"',
        "line 2: push.keep: give a time from 1m to 28d",
    ),
    (
        "[push]\nenable = true",
        "line 2: Unknown setting push.enable; did you mean push.enabled?",
    ),
    (
        '[relay]\nlisten = "x"',
        "line 2: relay.listen: write HOST:PORT, such as 127.0.0.1:7338",
    ),
    (
        '[relay]\nurl = "x"',
        "line 2: relay.url: write wss://HOST or ws://HOST:PORT",
    ),
    (
        '[access.telegram]\noperators = ["*"]',
        "line 2: access.telegram.operators: `*` is not possible; name each person by id",
    ),
    (
        "[profiles.work]\nrules = [{}]",
        "line 2: profiles.work.rules[0]: a rule names no place: give platform, account, scope, chat or thread",
    ),
    (
        '[agents.a]\nkind = "echo"\nrules = [{ platform = "x" }, {}]',
        "line 3: agents.a.rules[1]: a rule names no place: give platform, account, scope, chat or thread",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\n[agents.b]\nkind = "acp"',
        "line 4: agents.b: give a command to an agent of the kind acp, and to no other",
    ),
    (
        '[agents.a]\nkind = "python"',
        "line 1: agents.a: give a path to an agent of the kind python, and to no other",
    ),
    (
        '[agents."bad name"]\nkind = "echo"',
        "line 1: agents: 'bad name' is not a name for an agent: use lower-case letters, digits, - and _",
    ),
    (
        '[agents.llm]\nkind = "echo"',
        "line 1: agents: 'llm' is not a name for an agent: use lower-case letters, digits, - and _",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\ncwd = "here"',
        "line 4: agents.a.cwd: the folder 'here' is not absolute; write it from / or from ~",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\nfolders = ["/a", "b"]',
        "line 4: agents.a.folders: the folder 'b' is not absolute; write it from / or from ~",
    ),
    (
        '[profiles."Bad Name"]\ninstructions = "x"',
        "line 1: profiles: 'Bad Name' is not a profile name: use lower-case letters, digits, - and _; `main` is reserved",
    ),
    (
        'agent = "echo"\n[profiles.work]\nagent = "ehco"',
        "line 3: profiles.work.agent = 'ehco' is not known. Choose echo. Did you mean 'echo'?",
    ),
    (
        '[[models]]\nname = "a"\nbase_url = "http://x"',
        "line 1: models[0].id is missing",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "x"\n',
        "line 4: models[0].base_url: write an address that begins with https:// or http://",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\n[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\n',
        "line 6: models[1].name = 'a' is taken; give each model a name of its own",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\nfallback = ["b"]',
        "line 5: models[0].fallback = 'b' is not known. Choose a, local.",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\nfallback = ["a"]',
        "line 5: models[0].fallback: name other models, each of them once",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\n[[tools]]\nname = "a"\ncommand = ["x"]\n',
        "line 5: tools[1].name = 'a' is taken; give each server a name of its own",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\n[[tools]]\nname = "b"',
        "line 4: tools[1]: give either a command or a url",
    ),
    (
        '[[tools]]\nname = "A b"\ncommand = ["x"]',
        "line 2: tools[0].name: 'A b' is not a name for tools; use lower-case letters, digits and -",
    ),
    (
        '[transcription]\nbase_url = "x"',
        "line 2: transcription.base_url: write an address that begins with https:// or http://",
    ),
    (
        '[[models]]\nname = "a"\nid = "a"\nbase_url = "http://x"\n\n[[models]]\nname = "b"\nid = "b"\nbase_url = "http://x"\nkey = "geheim"',
        "line 10: models[1].key: write env:NAME or file:PATH, not the key itself",
    ),
    (
        '[agents.a]\nkind = "acp"\ncommand = ["x"]\nenv = { A = "geheim" }',
        "line 4: agents.a.env.A: write env:… or file:… or text:…, not the value itself",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\nheaders = { A = "geheim" }',
        "line 4: tools[0].headers.A: write env:… or file:… or text:…, not the value itself",
    ),
    (
        '[[tools]]\nname = "a"\ncommand = ["x"]\n[tools.env]\nA = "geheim"',
        "line 5: tools[0].env.A: write env:… or file:… or text:…, not the value itself",
    ),
    (
        '[telegram]\ntoken = "geheim"',
        "line 2: telegram.token: write env:NAME or file:PATH, not the secret itself",
    ),
    (
        '[telegram.work]\ntoken = "geheim"',
        "line 2: telegram.work.token: write env:NAME or file:PATH, not the secret itself",
    ),
    (
        '[web]\nsecret = "geheim"',
        "line 2: web.secret: write env:NAME or file:PATH here, not the token itself",
    ),
    (
        '[web]\npassword_from = "geheim"',
        "line 2: web.password_from: write env:NAME or file:PATH here, not the password itself",
    ),
    (
        '[relay]\nkey_from = "geheim"',
        "line 2: relay.key_from: write env:NAME or file:PATH here, not the key itself",
    ),
    (
        '[transcription]\nkey = "geheim"',
        "line 2: transcription.key: write env:NAME or file:PATH, not the key itself",
    ),
    (
        '[speech]\nmodel = "tts-1"\nkey = "geheim"',
        "line 3: speech.key: write env:NAME or file:PATH, not the key itself",
    ),
    (
        '[texts]\n"turn.stopping" = "OK."\n[texts.de]\n"turn.none_running" = "x"\n"turn.stoping" = "x"',
        "line 5: texts.de.turn.stoping: there is no such text; did you mean texts.de.turn.stopping?",
    ),
    (
        '[texts.de.session]\n\nback = "{sesion}"',
        "line 3: texts.de.session.back: this text has no field {sesion}; did you mean {session}?",
    ),
    (
        "port = 1\n[texts.de]\n'page.Send' = \"x\"\n'page.No such words' = \"x\"",
        "line 4: texts.de.page.No such words: there is no such text; did you mean texts.de.page.Not used for?",
    ),
    (
        'texts = { de = { "turn.stopping" = 3 } }',
        "line 1: texts.de.turn.stopping: write a text in quotes",
    ),
    (
        '[access.telegram]\nallow = """\n[web]\nidl = 1\n"""\n[web]\nidl = "3s"',
        "line 2: access.telegram.allow: write a list",
    ),
]


def read_all(home: Path) -> None:
    """Read the settings, and those of each platform that they name."""
    environ = {"KERYX_HOME": str(home)}
    for setup in config.list_setups(config.read(environ), environ):
        [adapter] = entry_points(group=ENTRY_POINT_GROUP, name=setup.platform)
        adapter.load()(setup)


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_a_wrong_setting_is_told_with_line_name_and_what_to_write(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "keryx.toml").write_text(text)
    with pytest.raises(Invalid) as refused:
        read_all(tmp_path)
    assert str(refused.value) == f"{tmp_path}/keryx.toml, {told}"
    assert "geheim" not in told


def test_nearly_every_table_has_a_wrong_setting_here() -> None:
    tables = {name for name, value in config.Settings().__class__.__annotations__.items() if value}
    named = " ".join(told for _, told in WRONG)
    assert {name for name in tables if f" {name}" not in named} <= {
        "model",
        "llm_model",
        "llm_files",
        "llm_audio",
        "profile",
        "agent",
    }

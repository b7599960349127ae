"""Real mail servers: Postfix hands what it takes to Dovecot, both on loopback, in a folder that goes away with them."""

import os
import shutil
import smtplib
import socket
import subprocess
import tempfile
import time
from email.message import EmailMessage
from pathlib import Path

from tests.free_ports import find_free_port

DOMAIN = "hub.test"
PEOPLE = "people.test"
PASSWORD = "a-long-password"
AUTHSERV = f"mx.{DOMAIN}"
_POSTFIX = Path("/usr/sbin/postfix")
_DOVECOT = Path("/usr/sbin/dovecot")
_START_SECONDS = 60

_DOVECOT_CONF = """\
base_dir = {folder}/dovecot/run
state_dir = {folder}/dovecot/state
log_path = {folder}/dovecot/log
protocols = imap lmtp
ssl = no
disable_plaintext_auth = no
auth_mechanisms = plain login
mail_location = maildir:{folder}/mail/%u
first_valid_uid = 1
mail_uid = mail
mail_gid = mail
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    special_use = \\Sent
    auto = create
  }}
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=mail gid=mail home={folder}/mail/%u allow_all_users=yes
}}
service imap-login {{
  inet_listener imap {{
    address = 127.0.0.1
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
service auth {{
  inet_listener {{
    address = 127.0.0.1
    port = {auth}
  }}
}}
"""

_MAIN_CF = """\
compatibility_level = 3.6
queue_directory = {folder}/postfix/spool
data_directory = {folder}/postfix/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
myhostname = {authserv}
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
virtual_mailbox_domains = {domain}, {people}
virtual_transport = lmtp:inet:127.0.0.1:{lmtp}
maillog_file = {folder}/postfix/log
maillog_file_prefixes = {folder}
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:{auth}
smtpd_relay_restrictions = permit_mynetworks, reject
smtputf8_enable = yes
header_checks = regexp:{folder}/postfix/header_checks
"""

# As a border server does: results of others are removed, and the own one is put on top.
_HEADER_CHECKS = """\
/^Authentication-Results:/ IGNORE
/^From:.*@people\\.test/ PREPEND Authentication-Results: {authserv}; dmarc=pass header.from=people.test
"""

_MASTER_CF = """\
127.0.0.1:{smtp} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
local unix - n n - - local
virtual unix - n n - - virtual
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


def find_reason_missing() -> str:
    """Return why the servers cannot be started here; empty if they can."""
    if not _POSTFIX.exists() or not _DOVECOT.exists():
        return "Postfix and Dovecot are not installed"
    return "" if os.geteuid() == 0 else "the servers need to be started as root"


class MailServer:
    """Started when made."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="keryx-mail-"))
        self._folder.chmod(0o755)
        names = ["imap", "lmtp", "auth", "smtp"]
        self._ports: dict[str, int] = {name: find_free_port() for name in names}
        self.imap = f"imap://127.0.0.1:{self._ports['imap']}"
        self.smtp = f"smtp://127.0.0.1:{self._ports['smtp']}"
        self._configure()
        self.start_dovecot()
        self._run("/usr/sbin/postfix", "-c", str(self._folder / "postfix"), "start")
        self._wait_for("smtp")

    def post(self, message: EmailMessage) -> None:
        """Hand a mail of a person to Postfix."""
        with smtplib.SMTP("127.0.0.1", self._ports["smtp"], timeout=30) as smtp:
            smtp.send_message(message)

    def start_dovecot(self) -> None:
        self._run(str(_DOVECOT), "-c", str(self._folder / "dovecot.conf"))
        self._wait_for("imap")

    def stop_dovecot(self) -> None:
        self._run(str(_DOVECOT), "-c", str(self._folder / "dovecot.conf"), "stop")

    def renumber(self, user: str) -> None:
        """Give the mailbox of a user a new UIDVALIDITY, as after a restore: Dovecot makes it from the files."""
        folder = self._folder / "mail" / user
        for path in [
            *folder.glob("dovecot-uid*"),
            *folder.glob("dovecot.index*"),
            *folder.glob(".INBOX/dovecot*"),
        ]:
            path.unlink()

    def remove(self) -> None:
        self._run("/usr/sbin/postfix", "-c", str(self._folder / "postfix"), "stop", check=False)
        self._run(str(_DOVECOT), "-c", str(self._folder / "dovecot.conf"), "stop", check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self) -> None:
        folder = self._folder
        values = {
            "folder": folder,
            "password": PASSWORD,
            "domain": DOMAIN,
            "people": PEOPLE,
            "authserv": AUTHSERV,
            **self._ports,
        }
        for name in ("dovecot/run", "dovecot/state", "postfix/spool", "postfix/data", "mail"):
            (folder / name).mkdir(parents=True)
        shutil.chown(folder / "mail", "mail", "mail")
        shutil.chown(folder / "postfix/data", "postfix")
        (folder / "dovecot.conf").write_text(_DOVECOT_CONF.format(**values))
        (folder / "postfix/main.cf").write_text(_MAIN_CF.format(**values))
        (folder / "postfix/master.cf").write_text(_MASTER_CF.format(**values))
        (folder / "postfix/header_checks").write_text(_HEADER_CHECKS.format(**values))

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self._ports[name]), 2) as found:
                    found.recv(1)
                return
            except OSError as exc:
                if time.monotonic() > deadline:
                    logs = [path.read_text(errors="replace")[-1000:] for path in self._folder.glob("*/log")]
                    raise RuntimeError(f"the mail servers do not start: {logs}") from exc
                time.sleep(0.05)

    def _run(self, *command: str, check: bool = True) -> None:
        subprocess.run(
            command, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_START_SECONDS
        )

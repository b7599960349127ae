"""The texts of what happened to a message and of why an answer was not delivered, in English and German. They are stored in English, and shown in the language of the reader."""

TEXTS: dict[str, tuple[str, str]] = {
    # What stands for a message without a text, and before what was forwarded. The model reads it in English.
    "content.forwarded": ("Forwarded:", "Weitergeleitet:"),
    "content.forwarded_from": ("Forwarded from {name}:", "Weitergeleitet von {name}:"),
    "content.forwarded_message": ("Forwarded message:", "Weitergeleitete Nachricht:"),
    "content.forwarded_messages": ("Forwarded messages:", "Weitergeleitete Nachrichten:"),
    "content.sticker": ("[sticker]", "[Sticker]"),
    "content.sticker_named": ("[sticker {name}]", "[Sticker {name}]"),
    "content.place": ("[place: {place}]", "[Ort: {place}]"),
    "content.place_unknown": ("[a place]", "[ein Ort]"),
    "content.location": ("[location: {place}]", "[Standort: {place}]"),
    "content.contact": ("[contact: {contact}]", "[Kontakt: {contact}]"),
    "content.contact_unnamed": ("[contact without a name]", "[Kontakt ohne Namen]"),
    "content.poll": ("[poll: {poll}]", "[Umfrage: {poll}]"),
    "content.seen_once": (
        "[a message that can be seen once]",
        "[eine Nachricht, die nur einmal angesehen werden kann]",
    ),
    "content.form_answer": ("[an answer to a form]", "[eine Antwort auf ein Formular]"),
    "content.share_chat": ("[the card of a chat]", "[die Karte eines Chats]"),
    "content.share_user": ("[the card of a person]", "[die Karte einer Person]"),
    "content.calendar": ("[an event of a calendar]", "[ein Termin]"),
    "content.interactive": ("[a card]", "[eine Karte]"),
    "content.merge_forward": ("[several forwarded messages]", "[mehrere weitergeleitete Nachrichten]"),
    "content.hongbao": ("[a red packet]", "[ein roter Umschlag]"),
    "content.todo": ("[a task]", "[eine Aufgabe]"),
    "content.vote": ("[a vote]", "[eine Abstimmung]"),
    "content.video_chat": ("[a call]", "[ein Anruf]"),
    "content.folder": ("[a folder]", "[ein Ordner]"),
    "content.rich_text": ("[a rich text that cannot be read]", "[ein Text, der nicht gelesen werden kann]"),
    "content.kind": ("[a message of the type {kind}]", "[eine Nachricht der Art {kind}]"),
    "content.not_passed_on": (
        "[a message of a kind that {platform} does not pass on: {kind}]",
        "[eine Nachricht einer Art, die {platform} nicht weitergibt: {kind}]",
    ),
    "content.not_passed_to_bots": (
        "[a message of a kind that is not passed on to bots]",
        "[eine Nachricht einer Art, die Bots nicht bekommen]",
    ),
    "content.file_unavailable": (
        "[{name}, which cannot be fetched]",
        "[{name}, nicht abrufbar]",
    ),
    # The story of a message.
    "trace.received": (
        "received{via}{author} as message {seq}",
        "angekommen{via}{author} als Nachricht {seq}",
    ),
    "trace.written": (
        "written by {role}{via}{author} as message {seq}",
        "geschrieben von {role}{via}{author} als Nachricht {seq}",
    ),
    "trace.via": (" via {surface}", " über {surface}"),
    "trace.from": (" from {author}", " von {author}"),
    "trace.role_user": ("a person", "einer Person"),
    "trace.role_assistant": ("the agent", "dem Agenten"),
    "trace.role_tool": ("a tool", "einem Werkzeug"),
    "trace.role_notice": ("Keryx", "Keryx"),
    "trace.lane_move": ("lane {lane} led here: {reason}", "der Chat {lane} führte hierher: {reason}"),
    "trace.lane": ("came by lane {lane}", "kam aus dem Chat {lane}"),
    "trace.author": ("its author is {rule}", "für die Person gilt: {rule}"),
    "trace.agent": ("its agent is {agent}", "es antwortet der Agent {agent}"),
    "trace.queued": ("queued as turn {turn} ({mode})", "eingereiht als Runde {turn} ({mode})"),
    "trace.attempt": ("attempt {number} began on {worker}", "Versuch {number} begann auf {worker}"),
    "trace.interrupted": (
        "interrupted: {reason}; put back into the queue",
        "unterbrochen: {reason}; wieder eingereiht",
    ),
    "trace.process_gone": ("the process was gone", "der Prozess war weg"),
    "trace.limit": ("its model had reached a limit", "das Modell hatte ein Limit erreicht"),
    "trace.limit_resets": ("the limit of {model} resets", "das Limit von {model} endet"),
    "trace.message": ("message {seq} by {role}{mark}", "Nachricht {seq} von {role}{mark}"),
    "trace.mark": (" ({mark})", " ({mark})"),
    "trace.asked": ("asked: {title}", "gefragt: {title}"),
    "trace.question": ("the question was {state}{answer}", "die Frage wurde {state}{answer}"),
    "trace.question_open": ("left open", "offen gelassen"),
    "trace.question_answered": ("answered", "beantwortet"),
    "trace.question_expired": ("not answered in time", "nicht rechtzeitig beantwortet"),
    "trace.question_cancelled": ("cancelled", "abgebrochen"),
    "trace.because": (": {reason}", ": {reason}"),
    "trace.finished": ("{state}{reason}", "{state}{reason}"),
    "trace.delivery_written": (
        "delivery {delivery} written for {target}",
        "Zustellung {delivery} geschrieben für {target}",
    ),
    "trace.delivery": (
        "delivery {delivery} {state} after {attempts:1 attempt|# attempts}, {parts:1 part|# parts}{receipts}{error}",
        "Zustellung {delivery}: {state} nach {attempts:1 Versuch|# Versuchen}, {parts:1 Teil|# Teile}{receipts}{error}",
    ),
    "trace.receipts": (" as {ids}", " als {ids}"),
    "trace.with_error": (", {reason}", ", {reason}"),
    "trace.observed": (
        "observed only: nobody asked for an answer",
        "nur mitgehört: niemand hat um eine Antwort gebeten",
    ),
    "trace.kept": ("kept", "aufbewahrt"),
    "trace.answered": ("answered in turn {turn}", "beantwortet in Runde {turn}"),
    "trace.ended": ("{state} (turn {turn})", "{state} (Runde {turn})"),
    "trace.conclusion": ("So: {outcome}.", "Also: {outcome}."),
    "trace.led_to_nothing": (
        "{name} of {platform} came at {time} UTC and led to no message: {reason}",
        "{name} von {platform} kam um {time} UTC an und führte zu keiner Nachricht: {reason}",
    ),
    "trace.several": (
        "{name} is several messages: choose one of {choices}",
        "{name} sind mehrere Nachrichten: wähle eine von {choices}",
    ),
    # Why a message of a platform led to nothing.
    "receipt.ignored": (
        "{reason}; its lane is {lane}; its author is {rule}",
        "{reason}; ihr Chat ist {lane}; für die Person gilt: {rule}",
    ),
    "receipt.forbidden": ("its author may not talk", "die Person darf nicht sprechen"),
    "receipt.not_addressed": ("it is not addressed to the agent", "sie ist nicht an den Agenten gerichtet"),
    "receipt.overheard": (
        "it is not addressed to the agent, and kept for the next question there",
        "sie ist nicht an den Agenten gerichtet und wird für die nächste Frage dort aufbewahrt",
    ),
    "receipt.no_lane": ("none, {reason}", "keiner, {reason}"),
    "receipt.command": ("it was the command /{name}", "sie war der Befehl /{name}"),
    "receipt.unknown": (
        "it changed an earlier message, or it came before reasons were kept",
        "sie hat eine frühere Nachricht geändert oder kam, bevor Gründe aufbewahrt wurden",
    ),
    "access.by_rule": (
        "allowed by `{rule}` of [access.{platform}]",
        "erlaubt durch `{rule}` von [access.{platform}]",
    ),
    "access.by_operator": (
        "allowed because an operator let them in",
        "erlaubt, weil ein Betreiber Zugang gegeben hat",
    ),
    "access.no_longer": (
        "not allowed any more by [access.{platform}]",
        "nicht mehr erlaubt durch [access.{platform}]",
    ),
    # Why a lane moved to another conversation.
    "move.first": ("first message", "erste Nachricht"),
    "move.run_thread": ("a thread of a scheduled run", "ein Thread eines geplanten Laufs"),
    "move.answer_thread": ("a thread on an answer", "ein Thread an einer Antwort"),
    "move.new": ("new", "neu begonnen"),
    "move.resume": ("resume", "wieder aufgenommen"),
    "move.undo_reset": ("undo-reset", "Neubeginn zurückgenommen"),
    "move.fork": ("fork", "Kopie"),
    "move.temporary": ("temporary", "vorübergehend"),
    "move.deleted": ("deleted", "gelöscht"),
    "move.unlinked": ("unlinked", "getrennt"),
    "move.idle": ("idle", "nach einer Pause"),
    "move.daily": ("daily", "neuer Tag"),
    "move.suspended": ("suspended", "ausgesetzt"),
    "move.joined": ("joined with {lane}", "verbunden mit {lane}"),
    "move.new_id": ("the chat has a new id", "der Chat hat eine neue Kennung"),
    "move.migrated": ("migrated from {program}", "übernommen aus {program}"),
    "move.migration_undone": (
        "the migration from {program} was taken back",
        "die Übernahme aus {program} wurde zurückgenommen",
    ),
    "move.job": ("a scheduled run", "ein geplanter Lauf"),
    "move.from": ("handed over from {platform}", "übergeben von {platform}"),
    "move.to": ("handed over to {platform}", "übergeben an {platform}"),
    # Why an answer was not delivered, or not yet.
    "delivery.wait": (
        "{platform} asks to wait {seconds} s",
        "{platform} bittet um eine Pause von {seconds} s",
    ),
    "delivery.wait_for": (
        "{platform} asks to wait {seconds} s for {what}",
        "{platform} bittet für {what} um eine Pause von {seconds} s",
    ),
    "delivery.wait_because": (
        "{platform} asks to wait {seconds} s: {reason}",
        "{platform} bittet um eine Pause von {seconds} s: {reason}",
    ),
    "delivery.pause": ("{platform} asks to wait", "{platform} bittet um eine Pause"),
    "delivery.wait_person": (
        "too many messages to this person: wait {seconds} s",
        "zu viele Nachrichten an diese Person: Pause von {seconds} s",
    ),
    "delivery.too_fast": (
        "{platform} says that messages come too fast: wait {seconds} s",
        "{platform} sagt, dass die Nachrichten zu schnell kommen: Pause von {seconds} s",
    ),
    "delivery.agent_rate": (
        "WhatsApp takes {count} messages a minute from an agent",
        "WhatsApp nimmt von einem Agenten {count} Nachrichten in der Minute an",
    ),
    "delivery.blocked": (
        "{platform} has blocked this account: {reason}",
        "{platform} hat dieses Konto gesperrt: {reason}",
    ),
    "delivery.closed": ("nothing is sent to {platform} now", "an {platform} wird gerade nichts gesendet"),
    "delivery.broke_down": (
        "{platform} broke down ({status}) and may have taken the message",
        "{platform} ist ausgefallen ({status}) und hat die Nachricht vielleicht angenommen",
    ),
    "delivery.broke_down_because": (
        "{platform} broke down and may have sent the message: {reason} ({status})",
        "{platform} ist ausgefallen und hat die Nachricht vielleicht gesendet: {reason} ({status})",
    ),
    "delivery.maybe_taken": (
        "{platform} may have taken the message ({status})",
        "{platform} hat die Nachricht vielleicht angenommen ({status})",
    ),
    "delivery.still_sending": ("{platform} is still sending it", "{platform} sendet sie noch"),
    "delivery.failed_maybe": (
        "{platform} failed and may have sent the message: {reason}",
        "{platform} ist gescheitert und hat die Nachricht vielleicht gesendet: {reason}",
    ),
    "delivery.network_maybe": (
        "{platform} lost the network and may have sent the message",
        "{platform} hat das Netz verloren und die Nachricht vielleicht gesendet",
    ),
    "delivery.no_id": (
        "{platform} took the message and gave no id",
        "{platform} hat die Nachricht angenommen und keine Kennung dafür genannt",
    ),
    "delivery.no_time": (
        "{platform} took the message and gave no time",
        "{platform} hat die Nachricht angenommen und keine Zeit dafür genannt",
    ),
    "delivery.file_no_key": (
        "{platform} took a file and gave no key",
        "{platform} hat eine Datei angenommen und keine Kennung dafür genannt",
    ),
    "delivery.file_no_address": (
        "{platform} took a file and named no address of it",
        "{platform} hat eine Datei angenommen und keine Adresse dafür genannt",
    ),
    "delivery.gave_no_id": ("{platform} gave no id", "{platform} hat keine Kennung genannt"),
    "delivery.not_answered": (
        "{platform} did not answer in time",
        "{platform} hat nicht rechtzeitig geantwortet",
    ),
    "delivery.not_answered_kind": (
        "{platform} did not answer ({kind})",
        "{platform} hat nicht geantwortet ({kind})",
    ),
    "delivery.unreachable": (
        "{platform} cannot be reached ({kind})",
        "{platform} ist nicht erreichbar ({kind})",
    ),
    "delivery.unreachable_because": (
        "{platform} cannot be reached: {reason}",
        "{platform} ist nicht erreichbar: {reason}",
    ),
    "delivery.connection_broken": (
        "the homeserver broke the connection: {reason}",
        "der Homeserver hat die Verbindung abgebrochen: {reason}",
    ),
    "delivery.homeserver_unreachable": (
        "the homeserver cannot be reached: {reason}",
        "der Homeserver ist nicht erreichbar: {reason}",
    ),
    "delivery.homeserver_pause": ("the homeserver asks for a pause", "der Homeserver bittet um eine Pause"),
    "delivery.homeserver_problem": (
        "the homeserver has a problem ({reason})",
        "der Homeserver hat ein Problem ({reason})",
    ),
    "delivery.homeserver_refuses": (
        "the homeserver does not take this message ({reason})",
        "der Homeserver nimmt diese Nachricht nicht an ({reason})",
    ),
    "delivery.homeserver_unreadable": (
        "the homeserver's answer cannot be read",
        "die Antwort des Homeservers ist nicht lesbar",
    ),
    "delivery.upload_unreadable": (
        "the homeserver's answer to an upload cannot be read",
        "die Antwort des Homeservers auf eine Datei ist nicht lesbar",
    ),
    "delivery.not_uploaded": (
        "the file could not be uploaded: {reason}",
        "die Datei konnte nicht hochgeladen werden: {reason}",
    ),
    "delivery.encrypted": (
        "this room is encrypted, and encryption is not available: {reason}",
        "dieser Raum ist verschlüsselt, und Verschlüsselung ist nicht verfügbar: {reason}",
    ),
    "delivery.unreadable": (
        "{platform} gave an answer that cannot be read",
        "die Antwort von {platform} ist nicht lesbar",
    ),
    "delivery.history_unreadable": (
        "{platform} gave a history that cannot be read",
        "der Verlauf von {platform} ist nicht lesbar",
    ),
    "delivery.list_unreadable": (
        "{platform} gave a list of messages that cannot be read",
        "die Liste der Nachrichten von {platform} ist nicht lesbar",
    ),
    "delivery.not_fetched": (
        "the file could not be fetched ({kind})",
        "die Datei konnte nicht geholt werden ({kind})",
    ),
    "delivery.refused_because": ("{platform} refuses: {reason}", "{platform} lehnt ab: {reason}"),
    "delivery.refused_status": (
        "{platform} refuses: {reason} ({status})",
        "{platform} lehnt ab: {reason} ({status})",
    ),
    "delivery.too_long": (
        "{platform} refuses: the message is too long ({status})",
        "{platform} lehnt ab: die Nachricht ist zu lang ({status})",
    ),
    "delivery.no_reason": ("no reason is given", "ohne Begründung"),
    "delivery.not_now": (
        "{platform} does not accept messages now: {reason}",
        "{platform} nimmt gerade keine Nachrichten an: {reason}",
    ),
    "delivery.not_now_status": (
        "{platform} does not accept messages now: {reason} ({status})",
        "{platform} nimmt gerade keine Nachrichten an: {reason} ({status})",
    ),
    "delivery.message_gone": ("the message is no longer there", "die Nachricht ist nicht mehr da"),
    "delivery.message_gone_or_final": (
        "the message is no longer there, or can no longer be changed",
        "die Nachricht ist nicht mehr da oder kann nicht mehr geändert werden",
    ),
    "delivery.edit_gone": (
        "the message to edit is not there",
        "die Nachricht, die geändert werden soll, ist nicht da",
    ),
    "delivery.edit_unknown": (
        "the message to edit cannot be looked up: {reason}",
        "die Nachricht, die geändert werden soll, konnte nicht gesucht werden: {reason}",
    ),
    "delivery.edit_foreign": (
        "only a message of this account can be edited",
        "nur eine Nachricht dieses Kontos kann geändert werden",
    ),
    "delivery.edit_too_old": (
        "{platform} takes no edit of a message that is older than {hours} hours",
        "{platform} nimmt keine Änderung einer Nachricht an, die älter als {hours} Stunden ist",
    ),
    "delivery.not_deleted": (
        "{platform} does not let the message be deleted",
        "{platform} lässt die Nachricht nicht löschen",
    ),
    "delivery.no_chat": (
        "the target names no chat: write {example}",
        "das Ziel nennt keinen Chat: schreib {example}",
    ),
    "delivery.no_channel": (
        "the target names no channel: write {example}",
        "das Ziel nennt keinen Kanal: schreib {example}",
    ),
    "delivery.no_person": (
        "the target names no person: write {example}",
        "das Ziel nennt keine Person: schreib {example}",
    ),
    "delivery.no_message": (
        "the target names no message to react to",
        "das Ziel nennt keine Nachricht für die Reaktion",
    ),
    "delivery.no_number": (
        "{text} is no number, as {platform} needs it here",
        "{text} ist keine Zahl, wie {platform} sie hier braucht",
    ),
    "delivery.no_such_chat": (
        "{platform} knows no such chat: {reason}",
        "{platform} kennt keinen solchen Chat: {reason}",
    ),
    "delivery.file_too_large": (
        "{name} is larger than the {limit} that {platform} takes",
        "{name} ist größer als die {limit}, die {platform} annimmt",
    ),
    "delivery.file_empty": (
        "{platform} takes no empty files: {name}",
        "{platform} nimmt keine leeren Dateien an: {name}",
    ),
    "delivery.file_not_sent": ("{name} was not sent: {reason}", "{name} wurde nicht gesendet: {reason}"),
    "delivery.file_not_written": (
        "cannot write {name}: {reason}",
        "{name} kann nicht geschrieben werden: {reason}",
    ),
    "delivery.wrong_token": (
        "Telegram does not know the bot's token: run `keryx gateway setup telegram`",
        "Telegram kennt das Token des Bots nicht: führ `keryx gateway setup telegram` aus",
    ),
    "delivery.wrong_access_token": (
        "{platform} refuses the token: run `keryx gateway setup whatsapp`",
        "{platform} lehnt das Token ab: führ `keryx gateway setup whatsapp` aus",
    ),
    "delivery.wrong_password": (
        "{platform} refuses the password: run `keryx gateway setup imessage`",
        "{platform} lehnt das Passwort ab: führ `keryx gateway setup imessage` aus",
    ),
    "delivery.no_account": (
        "{platform} does not have this account any more: run `keryx gateway setup signal`",
        "{platform} hat dieses Konto nicht mehr: führ `keryx gateway setup signal` aus",
    ),
    "delivery.scope": ("{platform} refuses {what}", "{platform} lehnt {what} ab"),
    "delivery.safety_number": (
        "the safety number of this person has changed: compare it and accept it with `signal-cli trust`",
        "die Sicherheitsnummer dieser Person hat sich geändert: vergleiche sie und nimm sie mit `signal-cli trust` an",
    ),
    "delivery.held": (
        "the person wrote too long ago: it is sent when they write again",
        "die Person hat zu lange nicht geschrieben: es wird gesendet, wenn sie wieder schreibt",
    ),
    "delivery.held_day": (
        "the person wrote more than {hours} hours ago: {platform} accepts it when they write again",
        "die Person hat seit mehr als {hours} Stunden nicht geschrieben: {platform} nimmt es an, wenn sie wieder schreibt",
    ),
    "delivery.held_until": (
        "WeChat accepts no more messages until the person writes: after 24 hours, or after 10 messages in a row",
        "WeChat nimmt keine Nachrichten mehr an, bis die Person schreibt: nach 24 Stunden oder nach 10 Nachrichten hintereinander",
    ),
    "delivery.smtp_refused": (
        "the server does not let us send: {reason}",
        "der Server lässt uns nicht senden: {reason}",
    ),
    "delivery.mail_unknown": (
        "it is not known whether the server took the mail: {reason}",
        "es ist nicht bekannt, ob der Server die E-Mail angenommen hat: {reason}",
    ),
    "delivery.server_silent": ("{address} does not answer", "{address} antwortet nicht"),
    "delivery.server_closed": (
        "{address} has closed the connection",
        "{address} hat die Verbindung geschlossen",
    ),
    "delivery.server_broke": (
        "the connection to {address} broke ({kind})",
        "die Verbindung zu {address} ist abgebrochen ({kind})",
    ),
    "delivery.server_certificate": (
        "{address} has no valid certificate ({reason})",
        "{address} hat kein gültiges Zertifikat ({reason})",
    ),
    "delivery.server_unreachable": (
        "{address} cannot be reached ({kind}): check its name and port, and the network",
        "{address} ist nicht erreichbar ({kind}): prüf Namen, Port und Netz",
    ),
    "delivery.receiver_unreachable": (
        "the receiver of webhooks cannot be reached ({kind})",
        "der Empfänger der Webhooks ist nicht erreichbar ({kind})",
    ),
    "delivery.receiver_silent": (
        "the receiver of webhooks did not answer ({kind})",
        "der Empfänger der Webhooks hat nicht geantwortet ({kind})",
    ),
    "delivery.receiver_pause": (
        "the receiver of webhooks asks to wait",
        "der Empfänger der Webhooks bittet um eine Pause",
    ),
    "delivery.receiver_broke_down": (
        "the receiver of webhooks broke down ({status}) and may have taken the message",
        "der Empfänger der Webhooks ist ausgefallen ({status}) und hat die Nachricht vielleicht angenommen",
    ),
    "delivery.receiver_refuses": (
        "the receiver of webhooks refuses it ({status}): check webhook.url and the secret there",
        "der Empfänger der Webhooks lehnt sie ab ({status}): prüf webhook.url und das Geheimnis dort",
    ),
    "delivery.sender_died": ("the sender died", "der Sender ist gestorben"),
    "delivery.deadly": (
        "{count} processes ended while they were sending this",
        "{count} Prozesse endeten, während sie dies sendeten",
    ),
    "delivery.adapter_failed": (
        "the {platform} adapter failed: {kind}",
        "der Adapter für {platform} ist gescheitert: {kind}",
    ),
    "delivery.adapter_split": (
        "the {platform} adapter cannot split this answer ({reason})",
        "der Adapter für {platform} kann diese Antwort nicht teilen ({reason})",
    ),
    "delivery.adapter_blocked": (
        "the {platform} adapter is blocked: the log says where",
        "der Adapter für {platform} ist blockiert: das Protokoll sagt, wo",
    ),
    "delivery.not_searched": (
        "the platform could not be searched for it: {kind}",
        "auf der Plattform konnte nicht danach gesucht werden: {kind}",
    ),
    "delivery.relay_too_long": (
        "this is too long for the relay: it has {count} characters",
        "das ist zu lang für das Relay: es hat {count} Zeichen",
    ),
    "delivery.relay_result_long": (
        "the result is too long for the relay",
        "das Ergebnis ist zu lang für das Relay",
    ),
    "delivery.relay_away": (
        "there is no connection to the relay at {host}",
        "es gibt keine Verbindung zum Relay auf {host}",
    ),
    "delivery.relay_lost": (
        "the connection to the relay at {host} was lost",
        "die Verbindung zum Relay auf {host} ging verloren",
    ),
    "delivery.relay_silent": (
        "the relay at {host} did not answer in time",
        "das Relay auf {host} hat nicht rechtzeitig geantwortet",
    ),
    "delivery.relay_render": (
        "the relay could not render a text: {reason}",
        "das Relay konnte einen Text nicht darstellen: {reason}",
    ),
    "delivery.relay_failed": (
        "the connector failed ({kind}): its log has the details",
        "der Connector ist gescheitert ({kind}): sein Protokoll hat die Einzelheiten",
    ),
    "delivery.relay_not_recorded": (
        "the connector could not record a send: {reason}",
        "der Connector konnte eine Sendung nicht festhalten: {reason}",
    ),
    "delivery.relay_foreign_chat": (
        "the chat {chat} on {platform} does not belong to this instance",
        "der Chat {chat} auf {platform} gehört nicht zu dieser Instanz",
    ),
    "delivery.relay_foreign_account": (
        "this target belongs to another account",
        "dieses Ziel gehört zu einem anderen Konto",
    ),
    "delivery.relay_no_account": (
        "the connector has no account {account} of {platform}",
        "der Connector hat kein Konto {account} von {platform}",
    ),
    "delivery.relay_maybe": (
        "the connector was ended while it sent this, so it may have arrived: `keryx deliveries retry` sends it again, with a mark",
        "der Connector endete, während er dies sendete, also ist es vielleicht angekommen: `keryx deliveries retry` sendet es noch einmal, mit einem Vermerk",
    ),
    "delivery.no_thread_names": ("threads have no names there", "Threads haben dort keine Namen"),
    "delivery.no_removal": (
        "messages cannot be removed there",
        "Nachrichten können dort nicht entfernt werden",
    ),
    "delivery.part_unknown": (
        "the text has {count} parts, and part {number} was asked for",
        "der Text hat {count} Teile, und Teil {number} wurde verlangt",
    ),
    "delivery.imsg_ended": ("imsg has ended: {reason}", "imsg hat sich beendet: {reason}"),
    "delivery.imsg_silent": (
        "imsg did not answer {method} ({kind})",
        "imsg hat auf {method} nicht geantwortet ({kind})",
    ),
    "delivery.mac_unreachable": (
        "the Mac cannot be reached: {reason}",
        "der Mac ist nicht erreichbar: {reason}",
    ),
    "delivery.file_over_bot_limit": (
        "{name} is larger than the 50 MB that Telegram takes from a bot",
        "{name} ist größer als die 50 MB, die Telegram von einem Bot annimmt",
    ),
    "delivery.no_network": (
        "signal-cli cannot reach Signal: {reason}",
        "signal-cli erreicht Signal nicht: {reason}",
    ),
    "delivery.broke_down_status": (
        "{platform} broke down ({status})",
        "{platform} ist ausgefallen ({status})",
    ),
    "delivery.other_form": (
        "{platform} answers in another form: {reason}",
        "{platform} antwortet in einer anderen Form: {reason}",
    ),
    "delivery.other_answer": (
        "{platform} gave an answer to another question",
        "{platform} hat eine andere Frage beantwortet",
    ),
    "delivery.no_token": ("{platform} gave no token", "{platform} hat kein Token gegeben"),
    "delivery.no_new_token": (
        "{platform} gives no new token now ({reason})",
        "{platform} gibt gerade kein neues Token ({reason})",
    ),
    "delivery.token_unreadable": (
        "{platform} gave no new token that can be read",
        "{platform} hat kein lesbares neues Token gegeben",
    ),
    "delivery.tokens_not_read": (
        "the tokens cannot be read from {path}: {reason}",
        "die Token können aus {path} nicht gelesen werden: {reason}",
    ),
    "delivery.tokens_not_stored": (
        "the new tokens cannot be stored in {path}: {reason}",
        "die neuen Token können nicht in {path} gespeichert werden: {reason}",
    ),
    "delivery.tokens_not_locked": (
        "the tokens cannot be locked in {path}: {reason}",
        "die Token in {path} können nicht gesperrt werden: {reason}",
    ),
    "delivery.nobody": ("{platform} does not say who the bot is", "{platform} sagt nicht, wer der Bot ist"),
    "delivery.no_file_address": (
        "{platform} does not say where the file is",
        "{platform} sagt nicht, wo die Datei ist",
    ),
    "delivery.no_connection_address": (
        "{platform} does not say where to connect",
        "{platform} sagt nicht, wohin die Verbindung geht",
    ),
    "delivery.server_ended": ("{address} has ended the connection", "{address} hat die Verbindung beendet"),
    "delivery.server_full": (
        "{address} takes no connections now",
        "{address} nimmt gerade keine Verbindungen an",
    ),
    "delivery.server_no_smtp": ("{address} does not speak SMTP", "{address} spricht kein SMTP"),
    "delivery.server_not_reading": ("{address} does not read", "{address} liest nicht"),
    "delivery.server_no_check": (
        "{address} cannot check the password now ({reason})",
        "{address} kann das Passwort gerade nicht prüfen ({reason})",
    ),
    "delivery.keys_elsewhere": (
        "the keys for this room are with the process that listens",
        "die Schlüssel für diesen Raum sind bei dem Prozess, der zuhört",
    ),
    "delivery.keys_in_use": (
        "another process uses the keys in {path}: encrypted rooms are served there",
        "ein anderer Prozess benutzt die Schlüssel in {path}: dort werden verschlüsselte Räume bedient",
    ),
    "delivery.keys_closed": ("the keys are not open", "die Schlüssel sind nicht geöffnet"),
    "delivery.keys_unreadable": (
        "the keys in {path} cannot be read: {reason}",
        "die Schlüssel in {path} sind nicht lesbar: {reason}",
    ),
    "delivery.keys_not_written": (
        "the keys cannot be written to {path}: {reason}",
        "die Schlüssel können nicht in {path} geschrieben werden: {reason}",
    ),
    "delivery.keys_damaged": (
        "the keys in {path} are damaged: move the file away and run `keryx gateway setup matrix` for a new device",
        "die Schlüssel in {path} sind beschädigt: leg die Datei beiseite und führ `keryx gateway setup matrix` für ein neues Gerät aus",
    ),
    "delivery.keys_missing": (
        "the keys of this device are not in {path}: put the file {name} back, or run `keryx gateway setup matrix` for a new device",
        "die Schlüssel dieses Geräts sind nicht in {path}: leg die Datei {name} zurück oder führ `keryx gateway setup matrix` für ein neues Gerät aus",
    ),
    "delivery.no_trusted_device": (
        "no device in this room is trusted, so nobody could read the message: `keryx matrix verify` verifies one",
        "keinem Gerät in diesem Raum wird vertraut, also könnte niemand die Nachricht lesen: `keryx matrix verify` bestätigt eines",
    ),
    "delivery.no_device": (
        "no device in this room can be given the key of the message now",
        "keinem Gerät in diesem Raum kann der Schlüssel der Nachricht gerade gegeben werden",
    ),
    "delivery.other_encryption": (
        "this room is encrypted in a way that is not supported",
        "dieser Raum ist auf eine Art verschlüsselt, die nicht unterstützt wird",
    ),
    "delivery.no_own_device": (
        "the access token belongs to no device: run `keryx gateway setup matrix` with a password",
        "das Zugangstoken gehört zu keinem Gerät: führ `keryx gateway setup matrix` mit einem Passwort aus",
    ),
    "delivery.homeserver_address": (
        "the homeserver {address} cannot be reached ({reason}): write the domain of your homeserver, or its whole address",
        "der Homeserver {address} ist nicht erreichbar ({reason}): schreib die Domain deines Homeservers oder seine ganze Adresse",
    ),
    "delivery.homeserver_wrong_address": (
        "the homeserver's answer cannot be read: is its address right?",
        "die Antwort des Homeservers ist nicht lesbar: stimmt seine Adresse?",
    ),
    # Exports as Markdown and HTML.
    "export.untitled": ("untitled", "ohne Titel"),
    "export.user": ("Person", "Person"),
    "export.assistant": ("Agent", "Agent"),
    "export.tool": ("Tool", "Werkzeug"),
    "export.notice": ("Notice", "Hinweis"),
    "export.undone": ("undone", "zurückgenommen"),
    "export.overheard": ("overheard", "mitgehört"),
    "export.session": ("Conversation", "Gespräch"),
    "export.started": ("Started", "Begonnen"),
    "export.last_message": ("Last message", "Letzte Nachricht"),
    "export.where": ("Where", "Wo"),
    "export.messages": ("Messages", "Nachrichten"),
    "export.project": ("Project", "Projekt"),
    "export.forked": ("Forked from", "Kopiert von"),
    "export.parent": ("{session}, message {seq}", "{session}, Nachricht {seq}"),
    "export.model": ("Model", "Modell"),
    "export.tokens": ("Tokens", "Tokens"),
    "export.count": ("{count:,}", "{count:,}"),
    "export.cost": ("Cost", "Kosten"),
    "export.cost_with_status": ("{cost:.4f} ({status})", "{cost:.4f} ({status})"),
    "export.cost_estimated": ("estimated", "geschätzt"),
    "export.cost_actual": ("actual", "tatsächlich"),
    "export.cost_unknown": ("unknown", "unbekannt"),
    "export.compacted": ("What came before was summarized here", "Was davor kam, wurde hier zusammengefasst"),
    "export.compacted_epoch": (
        "What came before was summarized here (epoch {number}).",
        "Was davor kam, wurde hier zusammengefasst (Abschnitt {number}).",
    ),
    "export.summary": ("Summary", "Zusammenfassung"),
    "export.several": ("{count:1 conversation|# conversations}", "{count:1 Gespräch|# Gespräche}"),
    "export.conversations": ("Conversations", "Gespräche"),
    "export.link": ("Link to message {seq}", "Link zur Nachricht {seq}"),
    "export.attached": ("Attached: {name}", "Angehängt: {name}"),
    "export.audio": ("Audio: {name}", "Ton: {name}"),
    "export.calls": ("Calls {tool}", "Ruft {tool} auf"),
    "export.tool_answered": ("{tool} answered", "{tool} hat geantwortet"),
    "export.tool_failed": ("{tool} failed", "{tool} ist gescheitert"),
    "export.reasoning": ("Reasoning", "Gedanken"),
    "export.footer": ("Exported by Keryx", "Exportiert von Keryx"),
    # Why a job is paused, or a run refused.
    "job.at_target": ("{target}: {reason}", "{target}: {reason}"),
}

"""The texts of the setups of platforms, in English and German."""

TEXTS: dict[str, tuple[str, str]] = {
    # For several platforms.
    "connect.start": (
        "start Keryx, or start it again: keryx serve",
        "starte Keryx, oder starte es neu: keryx serve",
    ),
    "connect.pair": (
        "it answers with a code; let yourself in: keryx pairing approve {platform} CODE --operator",
        "er antwortet mit einem Code; gib dir damit Zugang: keryx pairing approve {platform} CODE --operator",
    ),
    "connect.write_and_pair": (
        "write to it; it answers with a code; let yourself in: keryx pairing approve {platform} CODE --operator",
        "schreib ihm; er antwortet mit einem Code; gib dir damit Zugang: keryx pairing approve {platform} CODE --operator",
    ),
    "connect.check_network": (
        "{reason}: check the network, or base_url if you have set it, and try again",
        "{reason}: prüf das Netz oder base_url, falls du es gesetzt hast, und versuch es noch einmal",
    ),
    "connect.later": ("{reason}: try again later", "{reason}: versuch es später noch einmal"),
    "connect.token_unchecked": (
        "the token could not be checked: {reason}. Try again later",
        "das Token konnte nicht geprüft werden: {reason}. Versuch es später noch einmal",
    ),
    "connect.tokens_unchecked": (
        "the tokens could not be checked: {reason}. Try again later",
        "die Token konnten nicht geprüft werden: {reason}. Versuch es später noch einmal",
    ),
    "connect.credentials_unchecked": (
        "the credentials could not be checked: {reason}. Try again later",
        "die Zugangsdaten konnten nicht geprüft werden: {reason}. Versuch es später noch einmal",
    ),
    "connect.no_person": (
        "{name} is no person on {platform}: the id of one is {words}",
        "{name} ist keine Person auf {platform}: die Kennung von einer ist {words}",
    ),
    "connect.public_address_missing": (
        "write the public address of Keryx, such as https://keryx.example.org",
        "schreib die öffentliche Adresse von Keryx, etwa https://keryx.example.org",
    ),
    "connect.public_address": ("Public address of Keryx", "Öffentliche Adresse von Keryx"),
    "connect.api_address": ("Address of the API", "Adresse der API"),
    "connect.not_in_time": (
        "{platform} did not answer in time: try again later",
        "{platform} hat nicht rechtzeitig geantwortet: versuch es später noch einmal",
    ),
    "connect.failed": (
        "the setup of {platform} failed ({kind}): with log_level = info the log has the details",
        "die Einrichtung von {platform} ist gescheitert ({kind}): mit log_level = info hat das Protokoll die Einzelheiten",
    ),
    "connect.unknown_field": (
        "{platform} does not ask for {name}: it asks for {choices}",
        "{platform} fragt nicht nach {name}: es fragt nach {choices}",
    ),
    "connect.missing": ("{platform} needs {names}", "{platform} braucht {names}"),
    "connect.choose": ("{name}: choose {choices}", "{name}: wähle {choices}"),
    "connect.unprintable": (
        "{name}: this is too long, or has characters that cannot be printed",
        "{name}: das ist zu lang oder hat Zeichen, die nicht druckbar sind",
    ),
    "connect.account_name": (
        "{name} is no name for an account: use lower case letters, digits, _ and -",
        "{name} ist kein Name für ein Konto: nimm Kleinbuchstaben, Ziffern, _ und -",
    ),
    "connect.no_account": (
        "keryx.toml has no account {name}: `keryx gateway status` shows what is connected",
        "keryx.toml hat kein Konto {name}: `keryx gateway status` zeigt, was verbunden ist",
    ),
    "connect.by_variables": (
        "{name} is connected by variables alone, not by keryx.toml: remove {names}",
        "{name} ist nur durch Variablen verbunden, nicht durch keryx.toml: entferne {names}",
    ),
    "connect.unknown_platform": (
        "there is no setup of {name}: there are {choices}",
        "es gibt keine Einrichtung von {name}: es gibt {choices}",
    ),
    "connect.unusable": (
        "the setup of {platform}, {entry}, cannot be used ({reason})",
        "die Einrichtung von {platform}, {entry}, ist nicht benutzbar ({reason})",
    ),
    "connect.not_loaded": (
        "the setup of {platform} cannot be loaded: its package does not respond",
        "die Einrichtung von {platform} kann nicht geladen werden: ihr Paket antwortet nicht",
    ),
    "connect.no_folder": (
        "this process has no folder for settings: use `keryx gateway setup` instead",
        "dieser Prozess hat keinen Ordner für Einstellungen: nimm `keryx gateway setup`",
    ),
    # Telegram.
    "connect.telegram": ("Connect a bot on Telegram.", "Einen Bot auf Telegram verbinden."),
    "connect.telegram_intro": (
        """\
Keryx needs a bot of its own:
  1. in Telegram, open a chat with @BotFather and send /newbot
  2. give the bot a name, and a user name that ends in "bot"
  3. copy the token that BotFather answers with""",
        """\
Keryx braucht einen eigenen Bot:
  1. öffne in Telegram einen Chat mit @BotFather und sende /newbot
  2. gib dem Bot einen Namen und einen Benutzernamen, der auf "bot" endet
  3. kopiere das Token, mit dem BotFather antwortet""",
    ),
    "connect.telegram_privacy_on": (
        """\
In a group the bot hears commands, replies and messages that mention it. To let it hear everything that is said
there, send /setprivacy to @BotFather, choose Disable, and add the bot to the group again.""",
        """\
In einer Gruppe hört der Bot Befehle, Antworten und Nachrichten, die ihn nennen. Damit er alles hört, was dort gesagt
wird, sende /setprivacy an @BotFather, wähle Disable und füge den Bot der Gruppe neu hinzu.""",
    ),
    "connect.telegram_privacy_off": (
        "In a group the bot hears everything that is said; it answers what is meant for it.",
        "In einer Gruppe hört der Bot alles, was gesagt wird; er antwortet auf das, was ihm gilt.",
    ),
    "connect.telegram_bot": ("The bot is @{username} ({name}).", "Der Bot ist @{username} ({name})."),
    "connect.telegram_write": ("write to the bot: {address}", "schreib dem Bot: {address}"),
    "connect.telegram_webhook": (
        "another program gets the messages of @{username} by a webhook: --take-over removes that",
        "ein anderes Programm bekommt die Nachrichten von @{username} über einen Webhook: --take-over entfernt ihn",
    ),
    "connect.token": ("Token", "Token"),
    "connect.take_over": ("Take over", "Übernehmen"),
    "connect.take_over_help": (
        "Remove a webhook that another program has set for the bot.",
        "Einen Webhook entfernen, den ein anderes Programm für den Bot gesetzt hat.",
    ),
    "connect.telegram_bad_token": (
        "Telegram does not know this token: take the bot's token from @BotFather and run `keryx gateway setup telegram`",
        "Telegram kennt dieses Token nicht: hol das Token des Bots von @BotFather und führ `keryx gateway setup telegram` aus",
    ),
    # Matrix.
    "connect.matrix": ("Connect an account on Matrix.", "Ein Konto auf Matrix verbinden."),
    "connect.matrix_intro": (
        """\
Make an account for Keryx first, as for any person. Its password is used once,
to get an access token, and is not kept.""",
        """\
Leg zuerst ein Konto für Keryx an, wie für eine Person. Das Passwort wird einmal
benutzt, um ein Zugangstoken zu holen, und nicht aufbewahrt.""",
    ),
    "connect.matrix_account": ("Keryx speaks as {account}.", "Keryx spricht als {account}."),
    "connect.matrix_write": (
        "in your Matrix client, begin a chat with {account} and write to it",
        "beginne in deinem Matrix-Programm einen Chat mit {account} und schreib dort",
    ),
    "connect.matrix_write_plain": (
        "in your Matrix client, begin a chat with {account}, without encryption, and write to it",
        "beginne in deinem Matrix-Programm einen Chat mit {account}, ohne Verschlüsselung, und schreib dort",
    ),
    "connect.matrix_invite": (
        "Who may talk to it may also invite it into rooms.",
        "Wer damit sprechen darf, darf es auch in Räume einladen.",
    ),
    "connect.matrix_no_secret": (
        "the homeserver needs a password or an access token: give --password-file or --token-file",
        "der Homeserver braucht ein Passwort oder ein Zugangstoken: gib --password-file oder --token-file an",
    ),
    "connect.matrix_other_account": (
        "the access token belongs to {account}, not to {user}",
        "das Zugangstoken gehört zu {account}, nicht zu {user}",
    ),
    "connect.homeserver": ("Homeserver", "Homeserver"),
    "connect.homeserver_help": (
        "Its address, or the domain of the account.",
        "Seine Adresse oder die Domain des Kontos.",
    ),
    "connect.account": ("Account", "Konto"),
    "connect.account_help": ("The account that Keryx speaks as.", "Das Konto, als das Keryx spricht."),
    "connect.password": ("Password", "Passwort"),
    "connect.password_help": (
        "It is used once and not kept. Leave it empty to give an access token instead.",
        "Es wird einmal benutzt und nicht aufbewahrt. Lass es leer, um stattdessen ein Zugangstoken zu geben.",
    ),
    "connect.access_token": ("Access token", "Zugangstoken"),
    "connect.matrix_bad_token": (
        "the homeserver refuses the access token: log in again with `keryx gateway setup matrix`, then restart Keryx",
        "der Homeserver lehnt das Zugangstoken ab: melde dich mit `keryx gateway setup matrix` neu an und starte Keryx dann neu",
    ),
    # E-mail.
    "connect.email": ("Connect a mailbox.", "Ein Postfach verbinden."),
    "connect.email_title": ("E-mail", "E-Mail"),
    "connect.email_intro": (
        """\
Keryx needs a mailbox of its own: everything that arrives there and is from a
verified person is answered.

  1. make an address at your provider, such as keryx@example.org, with a
     password (an app password where the provider has them)
  2. have the addresses of its IMAP and SMTP servers at hand""",
        """\
Keryx braucht ein eigenes Postfach: alles, was dort ankommt und von einer
geprüften Person ist, wird beantwortet.

  1. leg bei deinem Anbieter eine Adresse an, etwa keryx@example.org, mit
     einem Passwort (einem App-Passwort, wo der Anbieter solche hat)
  2. halte die Adressen seiner IMAP- und SMTP-Server bereit""",
    ),
    "connect.email_one_secret": (
        "give the password of the mailbox, or a command that prints a token, and not both",
        "gib das Passwort des Postfachs an oder einen Befehl, der ein Token ausgibt, und nicht beides",
    ),
    "connect.email_no_authserv": (
        "none of the last mails in {mailbox} says which server checked its sender: ask your provider for the name in the header Authentication-Results and give it as `authserv`, or send a mail to the address and try again",
        "keine der letzten E-Mails in {mailbox} sagt, welcher Server ihren Absender geprüft hat: frag deinen Anbieter nach dem Namen in der Kopfzeile Authentication-Results und gib ihn als `authserv` an, oder sende eine E-Mail an die Adresse und versuch es noch einmal",
    ),
    "connect.email_account": (
        "Keryx reads and answers as {address}; {mailbox} holds {count:1 mail|# mails}, left unanswered.",
        "Keryx liest und antwortet als {address}; {mailbox} enthält {count:1 E-Mail|# E-Mails}, die unbeantwortet bleiben.",
    ),
    "connect.email_write": ("write a mail to {address}", "schreib eine E-Mail an {address}"),
    "connect.email_note": (
        "Mails count as those of their author if {authserv} has verified the sender (DMARC, DKIM or SPF).",
        "E-Mails gelten als die ihres Absenders, wenn {authserv} ihn geprüft hat (DMARC, DKIM oder SPF).",
    ),
    "connect.email_no_address": (
        "the address must be one such as keryx@example.org",
        "die Adresse muss eine sein wie keryx@example.org",
    ),
    "connect.email_unreadable": (
        "the mailbox {mailbox} cannot be read: {reason}",
        "das Postfach {mailbox} ist nicht lesbar: {reason}",
    ),
    "connect.email_wrong_password": (
        "{server} refuses the user name or the password: {code}",
        "{server} lehnt den Benutzernamen oder das Passwort ab: {code}",
    ),
    "connect.email_not_sending": (
        "{server} does not let us send: {code}",
        "{server} lässt uns nicht senden: {code}",
    ),
    "connect.email_address": ("Address of the mailbox", "Adresse des Postfachs"),
    "connect.email_address_help": ("People write to Keryx there.", "Dorthin schreiben Personen an Keryx."),
    "connect.email_password": ("Password of the mailbox", "Passwort des Postfachs"),
    "connect.email_password_help": (
        "Give an app password if your provider has them.",
        "Gib ein App-Passwort an, wenn dein Anbieter solche hat.",
    ),
    "connect.email_imap": ("IMAP server", "IMAP-Server"),
    "connect.email_imap_help": (
        "imaps://HOST for TLS, imap://HOST for STARTTLS; guessed from the address if it is empty.",
        "imaps://HOST für TLS, imap://HOST für STARTTLS; wenn es leer ist, aus der Adresse erraten.",
    ),
    "connect.email_smtp": ("SMTP server", "SMTP-Server"),
    "connect.email_smtp_help": (
        "smtps://HOST for TLS, smtp://HOST for STARTTLS; guessed from the address if it is empty.",
        "smtps://HOST für TLS, smtp://HOST für STARTTLS; wenn es leer ist, aus der Adresse erraten.",
    ),
    "connect.email_authserv": ("Server that checks senders", "Server, der Absender prüft"),
    "connect.email_authserv_help": (
        "The first word of the header Authentication-Results; read from the last mails if it is empty.",
        "Das erste Wort der Kopfzeile Authentication-Results; wenn es leer ist, aus den letzten E-Mails gelesen.",
    ),
    "connect.email_user": (
        "User name, if it is not the address",
        "Benutzername, wenn es nicht die Adresse ist",
    ),
    "connect.email_command": (
        "Command that prints a token for OAuth 2, instead of a password",
        "Befehl, der ein Token für OAuth 2 ausgibt, statt eines Passworts",
    ),
    "connect.email_mailbox": ("Mailbox to read", "Postfach, das gelesen wird"),
    "connect.email_ca": ("File with certificates to trust", "Datei mit Zertifikaten, denen vertraut wird"),
    # Slack.
    "connect.slack": ("Connect an app on Slack.", "Eine App auf Slack verbinden."),
    "connect.slack_intro": (
        """\
Make an app on Slack first:

  1. open https://api.slack.com/apps, choose Create New App, then From a
     manifest, and paste this:

{manifest}

  2. on the page Basic Information, under App-Level Tokens, make a token with
     the scope connections:write: that is the app token (xapp-…)
  3. on the page Install App, install it to your workspace: Slack shows the
     bot token (xoxb-…)
""",
        """\
Leg zuerst eine App bei Slack an:

  1. öffne https://api.slack.com/apps, wähle Create New App, dann From a
     manifest, und füge dies ein:

{manifest}

  2. leg auf der Seite Basic Information, unter App-Level Tokens, ein Token mit
     dem Bereich connections:write an: das ist das App-Token (xapp-…)
  3. installiere die App auf der Seite Install App in deinem Arbeitsbereich:
     Slack zeigt das Bot-Token (xoxb-…)
""",
    ),
    "connect.slack_no_secret": (
        "the Events API needs the signing secret, from the page Basic Information of the app",
        "die Events API braucht das Signing Secret, von der Seite Basic Information der App",
    ),
    "connect.slack_rotation": (
        "tokens that rotate need the refresh token from the page OAuth & Permissions of the app, and the client id and the client secret from the page Basic Information",
        "Token, die wechseln, brauchen das Refresh-Token von der Seite OAuth & Permissions der App sowie Client-ID und Client-Secret von der Seite Basic Information",
    ),
    "connect.slack_bot": (
        "The bot is @{name} in the workspace {workspace}.",
        "Der Bot ist @{name} im Arbeitsbereich {workspace}.",
    ),
    "connect.slack_scopes": (
        "The app lacks scopes, so some of what Keryx does will fail: {scopes}. Add them on the page OAuth & Permissions of the app and install it again.",
        "Der App fehlen Bereiche, daher wird manches scheitern, was Keryx tut: {scopes}. Füg sie auf der Seite OAuth & Permissions der App hinzu und installiere sie neu.",
    ),
    "connect.slack_hook": (
        "on the pages Event Subscriptions, Interactivity and Slash Commands of the app, set the address {address}",
        "setz auf den Seiten Event Subscriptions, Interactivity und Slash Commands der App die Adresse {address}",
    ),
    "connect.slack_write": (
        "write to the app in Slack, or invite it to a channel with /invite and mention it",
        "schreib der App in Slack, oder lade sie mit /invite in einen Kanal ein und nenn sie",
    ),
    "connect.slack_token": ("Bot token", "Bot-Token"),
    "connect.slack_token_help": (
        "It is on the page OAuth & Permissions of the app, and begins with xoxb-.",
        "Es steht auf der Seite OAuth & Permissions der App und beginnt mit xoxb-.",
    ),
    "connect.slack_app_token": ("App token", "App-Token"),
    "connect.slack_app_token_help": (
        "It is on the page Basic Information of the app, and begins with xapp-.",
        "Es steht auf der Seite Basic Information der App und beginnt mit xapp-.",
    ),
    "connect.slack_mode": ("How Slack reaches Keryx", "Wie Slack Keryx erreicht"),
    "connect.slack_mode_help": (
        "socket needs no public address; events lets Slack post to Keryx.",
        "socket braucht keine öffentliche Adresse; mit events sendet Slack an Keryx.",
    ),
    "connect.slack_signing_secret": ("Signing secret", "Signing Secret"),
    "connect.slack_signing_secret_help": (
        "For the Events API: it is on the page Basic Information of the app.",
        "Für die Events API: es steht auf der Seite Basic Information der App.",
    ),
    "connect.slack_refresh_token": ("Refresh token", "Refresh-Token"),
    "connect.slack_refresh_token_help": (
        "For tokens that rotate: it is beside the bot token, and begins with xoxe-.",
        "Für Token, die wechseln: es steht neben dem Bot-Token und beginnt mit xoxe-.",
    ),
    "connect.slack_client_id": ("Client id", "Client-ID"),
    "connect.slack_client_secret": ("Client secret", "Client-Secret"),
    "connect.slack_client_help": (
        "For tokens that rotate: it is on the page Basic Information of the app.",
        "Für Token, die wechseln: es steht auf der Seite Basic Information der App.",
    ),
    "connect.slack_url_help": (
        "For the Events API, such as https://keryx.example.org.",
        "Für die Events API, etwa https://keryx.example.org.",
    ),
    "connect.slack_api": ("Address of the Web API", "Adresse der Web API"),
    "connect.slack_api_help": (
        "Only for another one than Slack's own.",
        "Nur für eine andere als die von Slack.",
    ),
    "connect.slack_bad_app_token": (
        "Slack does not accept the app token: make one with the scope connections:write at the page Basic Information of the app",
        "Slack nimmt das App-Token nicht an: leg eines mit dem Bereich connections:write auf der Seite Basic Information der App an",
    ),
    "connect.slack_invalid_auth": (
        "Slack does not accept the token: take the bot token from the page OAuth & Permissions of the app and run `keryx gateway setup slack`",
        "Slack nimmt das Token nicht an: hol das Bot-Token von der Seite OAuth & Permissions der App und führ `keryx gateway setup slack` aus",
    ),
    "connect.slack_not_authed": (
        "Slack got no token: run `keryx gateway setup slack`",
        "Slack hat kein Token bekommen: führ `keryx gateway setup slack` aus",
    ),
    "connect.slack_token_revoked": (
        "the token was revoked, or the app was removed from the workspace: install the app again and run `keryx gateway setup slack`",
        "das Token wurde widerrufen, oder die App wurde aus dem Arbeitsbereich entfernt: installiere die App neu und führ `keryx gateway setup slack` aus",
    ),
    "connect.slack_token_expired": (
        "the token has expired, and no refresh token is set: run `keryx gateway setup slack`",
        "das Token ist abgelaufen, und kein Refresh-Token ist gesetzt: führ `keryx gateway setup slack` aus",
    ),
    "connect.slack_account_inactive": (
        "the workspace or the bot's account was deactivated: ask an owner of the workspace",
        "der Arbeitsbereich oder das Konto des Bots wurde deaktiviert: frag einen Inhaber des Arbeitsbereichs",
    ),
    "connect.slack_invalid_refresh_token": (
        "Slack does not accept the refresh token: install the app again and run `keryx gateway setup slack`",
        "Slack nimmt das Refresh-Token nicht an: installiere die App neu und führ `keryx gateway setup slack` aus",
    ),
    "connect.slack_bad_client_secret": (
        "Slack does not accept slack.client_secret: take it from the page Basic Information of the app",
        "Slack nimmt slack.client_secret nicht an: hol es von der Seite Basic Information der App",
    ),
    "connect.slack_invalid_client_id": (
        "Slack does not know slack.client_id: take it from the page Basic Information of the app",
        "Slack kennt slack.client_id nicht: hol sie von der Seite Basic Information der App",
    ),
    "connect.slack_not_allowed_token_type": (
        "this is the wrong kind of token: the bot token begins with xoxb-, the app token with xapp-",
        "das ist die falsche Art von Token: das Bot-Token beginnt mit xoxb-, das App-Token mit xapp-",
    ),
    "connect.slack_org_login_required": (
        "the workspace is being moved to an organisation: try again when that is done",
        "der Arbeitsbereich wird gerade in eine Organisation verschoben: versuch es danach noch einmal",
    ),
    "connect.slack_ekm_access_denied": (
        "the owners of the workspace have suspended access to it",
        "die Inhaber des Arbeitsbereichs haben den Zugriff ausgesetzt",
    ),
    "connect.slack_team_access_not_granted": (
        "the app is not approved for this workspace: ask an owner of the workspace",
        "die App ist für diesen Arbeitsbereich nicht freigegeben: frag einen Inhaber des Arbeitsbereichs",
    ),
    "connect.slack_app_uninstalled": (
        "the app was removed from the workspace: install it again and run `keryx gateway setup slack`",
        "die App wurde aus dem Arbeitsbereich entfernt: installiere sie neu und führ `keryx gateway setup slack` aus",
    ),
    # Discord.
    "connect.discord": ("Connect a bot on Discord.", "Einen Bot auf Discord verbinden."),
    "connect.discord_intro": (
        """\
1. Open https://discord.com/developers/applications and press New Application.
2. On the page Bot, press Reset Token and copy the token.
3. On the same page, switch on Message Content Intent, and save.""",
        """\
1. Öffne https://discord.com/developers/applications und drück New Application.
2. Drück auf der Seite Bot Reset Token und kopiere das Token.
3. Schalte auf derselben Seite Message Content Intent ein und speichere.""",
    ),
    "connect.discord_bot": ("Keryx is {name} on Discord ({id}).", "Keryx ist {name} auf Discord ({id})."),
    "connect.discord_invite": (
        "Open {address} and choose the server that the bot joins.",
        "Öffne {address} und wähle den Server, dem der Bot beitritt.",
    ),
    "connect.discord_serve": ("Run `keryx serve`.", "Führ `keryx serve` aus."),
    "connect.discord_write": (
        "Write to the bot in a direct chat, or mention it in a channel.",
        "Schreib dem Bot in einem direkten Chat, oder nenn ihn in einem Kanal.",
    ),
    "connect.discord_pair": (
        "In a direct chat it answers with a code; let yourself in: keryx pairing approve {platform} CODE --operator",
        "In einem direkten Chat antwortet er mit einem Code; gib dir damit Zugang: keryx pairing approve {platform} CODE --operator",
    ),
    "connect.discord_token": ("Token of the bot", "Token des Bots"),
    "connect.discord_token_help": (
        "The page Bot of the developer portal shows it once, after Reset Token.",
        "Die Seite Bot des Entwicklerportals zeigt es einmal, nach Reset Token.",
    ),
    "connect.discord_allow": (
        "Who may talk to the bot, as user ids with commas",
        "Wer mit dem Bot sprechen darf, als Benutzer-IDs mit Kommas",
    ),
    "connect.discord_allow_help": (
        "In Discord, switch on Developer Mode under Advanced, then right-click a person and choose Copy User ID. Whoever is not listed can ask for a pairing code.",
        "Schalte in Discord unter Erweitert den Entwicklermodus ein, klick dann mit rechts auf eine Person und wähle Benutzer-ID kopieren. Wer nicht in der Liste steht, kann um einen Code bitten.",
    ),
    "connect.discord_mentions": (
        "Read only direct messages and mentions",
        "Nur direkte Nachrichten und Erwähnungen lesen",
    ),
    "connect.discord_mentions_help": (
        "For a bot without Message Content Intent.",
        "Für einen Bot ohne Message Content Intent.",
    ),
    "connect.discord_threads": (
        "Begin a thread for each conversation in a channel",
        "Für jedes Gespräch in einem Kanal einen Thread beginnen",
    ),
    "connect.discord_api_help": ("Only for a proxy of your own.", "Nur für einen eigenen Proxy."),
    "connect.discord_bad_token": (
        "Discord does not accept this token: open https://discord.com/developers/applications, choose the application, press Reset Token on the page Bot, and run `keryx gateway setup discord`",
        "Discord nimmt dieses Token nicht an: öffne https://discord.com/developers/applications, wähle die Anwendung, drück auf der Seite Bot Reset Token und führ `keryx gateway setup discord` aus",
    ),
    "connect.discord_no_intent": (
        "Discord does not give this bot the text of messages: open https://discord.com/developers/applications, choose the application, switch on Message Content Intent on the page Bot, save, and wait a minute; or set discord.message_content = false, then the bot reads direct messages and mentions only",
        "Discord gibt diesem Bot den Text der Nachrichten nicht: öffne https://discord.com/developers/applications, wähle die Anwendung, schalte auf der Seite Bot Message Content Intent ein, speichere und warte eine Minute; oder setz discord.message_content = false, dann liest der Bot nur direkte Nachrichten und Erwähnungen",
    ),
    # Signal.
    "connect.signal": (
        "Connect an account on Signal, by signal-cli.",
        "Ein Konto auf Signal verbinden, mit signal-cli.",
    ),
    "connect.signal_intro": (
        """\
Keryx speaks Signal through signal-cli, which you install and start:

  mkdir -p ~/.keryx/signal && touch ~/.keryx/signal/received.jsonl
  chmod 600 ~/.keryx/signal/received.jsonl
  signal-cli --output=json daemon --http=127.0.0.1:8080 \\
    --receive-mode=manual >> ~/.keryx/signal/received.jsonl

If signal-cli has no account yet, the setup shows a QR code: in Signal on the
telephone, open Settings, Linked devices, Link new device, and scan it.""",
        """\
Keryx spricht Signal über signal-cli, das du installierst und startest:

  mkdir -p ~/.keryx/signal && touch ~/.keryx/signal/received.jsonl
  chmod 600 ~/.keryx/signal/received.jsonl
  signal-cli --output=json daemon --http=127.0.0.1:8080 \\
    --receive-mode=manual >> ~/.keryx/signal/received.jsonl

Hat signal-cli noch kein Konto, zeigt die Einrichtung einen QR-Code: öffne in
Signal auf dem Telefon Einstellungen, Gekoppelte Geräte, Neues Gerät koppeln,
und scanne ihn.""",
    ),
    "connect.signal_no_spool": (
        "Without a spool, a message that arrives while Keryx is stopped or killed can be lost: signal-cli hands over each message once. With it, nothing is.",
        "Ohne Spool kann eine Nachricht verloren gehen, die ankommt, während Keryx angehalten oder beendet ist: signal-cli übergibt jede Nachricht einmal. Mit ihm geht nichts verloren.",
    ),
    "connect.signal_own": (
        "Everybody who writes to {number} is answered: strangers get a code. Use a number that is Keryx's alone.",
        "Wer an {number} schreibt, bekommt eine Antwort: Fremde einen Code. Nimm eine Nummer, die nur Keryx gehört.",
    ),
    "connect.signal_personal": (
        "Keryx hears your notes to self and nothing else of this account. It can read all of it, as any linked device can.",
        "Keryx hört deine Notizen an dich und sonst nichts von diesem Konto. Es kann alles darin lesen, wie jedes gekoppelte Gerät.",
    ),
    "connect.signal_notes": ("{note} {other}", "{note} {other}"),
    "connect.signal_update": (
        "{reason}: update signal-cli, and try again",
        "{reason}: aktualisiere signal-cli und versuch es noch einmal",
    ),
    "connect.signal_start": (
        "{reason}: start it with `signal-cli --output=json daemon --http=127.0.0.1:8080 --receive-mode=manual >> FILE`, or check url; FILE is the spool",
        "{reason}: starte es mit `signal-cli --output=json daemon --http=127.0.0.1:8080 --receive-mode=manual >> DATEI`, oder prüf url; DATEI ist der Spool",
    ),
    "connect.signal_note_to_self": ("write a note to self in Signal", "schreib in Signal eine Notiz an dich"),
    "connect.signal_write": ("write to {number} in Signal", "schreib in Signal an {number}"),
    "connect.signal_account": (
        "The account is {number}, by signal-cli {version}.",
        "Das Konto ist {number}, über signal-cli {version}.",
    ),
    "connect.unknown_version": ("of an unknown version", "unbekannter Version"),
    "connect.signal_spool_missing": (
        "{path} does not exist: start signal-cli with its output appended to it, >> {path}",
        "{path} gibt es nicht: starte signal-cli so, dass seine Ausgabe angehängt wird, >> {path}",
    ),
    "connect.signal_one_account": (
        "signal-cli was started for one account: give its number with --account",
        "signal-cli wurde für ein Konto gestartet: gib seine Nummer mit --account an",
    ),
    "connect.signal_no_account": (
        "signal-cli has no account {number} (it has {known}): leave it out with --link to link it",
        "signal-cli hat kein Konto {number} (es hat {known}): lass es weg und nimm --link, um es zu koppeln",
    ),
    "connect.signal_several": (
        "signal-cli has several accounts: choose one with --account: {choices}",
        "signal-cli hat mehrere Konten: wähle eines mit --account: {choices}",
    ),
    "connect.signal_network": (
        "{reason}: check the network of signal-cli, and try again",
        "{reason}: prüf das Netz von signal-cli und versuch es noch einmal",
    ),
    "connect.signal_no_code": (
        "signal-cli gave no code to scan: try again",
        "signal-cli hat keinen Code zum Scannen gegeben: versuch es noch einmal",
    ),
    "connect.signal_scan_form": (
        "make a QR code of {uri} and scan it in Signal, Settings, Linked devices; then go on with device_link = {uri}",
        "mach einen QR-Code aus {uri} und scanne ihn in Signal, Einstellungen, Gekoppelte Geräte; mach dann mit device_link = {uri} weiter",
    ),
    "connect.signal_scan": (
        "In Signal on the telephone, open Settings, Linked devices, Link new device, and scan this code within a minute:\n\n{code}\n\nOr make a code of this address yourself: {uri}",
        "Öffne in Signal auf dem Telefon Einstellungen, Gekoppelte Geräte, Neues Gerät koppeln, und scanne diesen Code innerhalb einer Minute:\n\n{code}\n\nOder mach selbst einen Code aus dieser Adresse: {uri}",
    ),
    "connect.signal_too_late": (
        "the code was not scanned in time: run the setup again",
        "der Code wurde nicht rechtzeitig gescannt: beginne die Einrichtung neu",
    ),
    "connect.signal_again": ("{reason}. Run the setup again", "{reason}. Beginne die Einrichtung neu"),
    "connect.signal_url": ("Address of signal-cli", "Adresse von signal-cli"),
    "connect.signal_url_help": ("Where the daemon listens.", "Wo der Dienst zuhört."),
    "connect.signal_spool": ("File with the output of signal-cli", "Datei mit der Ausgabe von signal-cli"),
    "connect.signal_spool_help": (
        "What signal-cli receives is appended to it, so that nothing is lost when Keryx is killed.",
        "Was signal-cli empfängt, wird angehängt, damit nichts verloren geht, wenn Keryx beendet wird.",
    ),
    "connect.signal_use": ("Whose account is it", "Wessen Konto ist es"),
    "connect.signal_use_help": (
        "`keryx` if the number is Keryx's alone, `me` if it is yours: then only notes to self are heard.",
        "`keryx`, wenn die Nummer nur Keryx gehört, `me`, wenn sie deine ist: dann werden nur Notizen an dich gehört.",
    ),
    "connect.signal_number": ("Number of the account", "Nummer des Kontos"),
    "connect.signal_number_help": (
        "Needed only if signal-cli has several.",
        "Nur nötig, wenn signal-cli mehrere hat.",
    ),
    "connect.signal_link": ("Link", "Koppeln"),
    "connect.signal_link_help": (
        "Link a new device even if signal-cli has an account.",
        "Ein neues Gerät koppeln, auch wenn signal-cli ein Konto hat.",
    ),
    "connect.signal_scanned": ("Code that was scanned", "Code, der gescannt wurde"),
    "connect.signal_scanned_help": (
        "For forms: the address of the code that the first attempt has named.",
        "Für Formulare: die Adresse des Codes, die der erste Versuch genannt hat.",
    ),
    # iMessage.
    "connect.imessage": ("Connect the app Messages of a Mac.", "Die App Nachrichten eines Macs verbinden."),
    "connect.imessage_intro": (
        """\
iMessage needs a Mac that is signed in to Messages, best with an Apple account
of its own for the agent. Choose `imsg` if Keryx runs on this Mac or reaches it
by ssh. Choose `bluebubbles` if a BlueBubbles server runs there.

For `imsg`: on the Mac, run `brew install steipete/tap/imsg`, and allow Full
Disk Access and Automation of Messages for the program that starts it. Test it:
`imsg chats`, or from here `ssh mac imsg chats`.

For `bluebubbles`: install the server from bluebubbles.app on the Mac. Its
window shows the address, and the password under API & Webhooks.""",
        """\
iMessage braucht einen Mac, der bei Nachrichten angemeldet ist, am besten mit
einem eigenen Apple-Konto für den Agenten. Wähle `imsg`, wenn Keryx auf diesem
Mac läuft oder ihn über ssh erreicht. Wähle `bluebubbles`, wenn dort ein Server
von BlueBubbles läuft.

Für `imsg`: führ auf dem Mac `brew install steipete/tap/imsg` aus und erlaube
dem Programm, das es startet, Festplattenvollzugriff und Automation für
Nachrichten. Prüf es: `imsg chats`, oder von hier `ssh mac imsg chats`.

Für `bluebubbles`: installiere den Server von bluebubbles.app auf dem Mac. Sein
Fenster zeigt die Adresse, und das Passwort unter API & Webhooks.""",
    ),
    "connect.imessage_note": (
        "Everybody who writes to this Apple account gets a pairing code. If the account is your own, write `pairing = false` under [access.imessage] in keryx.toml, and let people in by `allow`.",
        "Wer an dieses Apple-Konto schreibt, bekommt einen Code. Ist das Konto dein eigenes, schreib `pairing = false` unter [access.imessage] in keryx.toml und gib Personen mit `allow` Zugang.",
    ),
    "connect.imessage_note_no_api": (
        "{note} The private API of the server is off, so typing is not shown and nothing is marked as read.",
        "{note} Die private API des Servers ist aus, daher wird Schreiben nicht angezeigt und nichts als gelesen markiert.",
    ),
    "connect.imessage_reads": ("imsg reads the messages of the Mac.", "imsg liest die Nachrichten des Macs."),
    "connect.imessage_no_password": (
        "the password is missing: the server shows it under API & Webhooks",
        "das Passwort fehlt: der Server zeigt es unter API & Webhooks",
    ),
    "connect.imessage_unreachable": (
        "{reason}: check base_url, and that the server runs",
        "{reason}: prüf base_url und ob der Server läuft",
    ),
    "connect.imessage_server": (
        "BlueBubbles {version} is signed in as {account}.",
        "BlueBubbles {version} ist angemeldet als {account}.",
    ),
    "connect.imessage_unknown_version": ("(unknown version)", "(unbekannte Version)"),
    "connect.imessage_unknown_account": ("an unknown account", "ein unbekanntes Konto"),
    "connect.imessage_transport": ("What connects Keryx with the Mac", "Was Keryx mit dem Mac verbindet"),
    "connect.imessage_transport_help": (
        "`imsg` for the program imsg, here or by ssh; `bluebubbles` for a BlueBubbles server.",
        "`imsg` für das Programm imsg, hier oder über ssh; `bluebubbles` für einen Server von BlueBubbles.",
    ),
    "connect.imessage_command": ("Command that starts imsg", "Befehl, der imsg startet"),
    "connect.imessage_command_help": (
        "For `imsg`: with ssh before it if the Mac is another machine.",
        "Für `imsg`: mit ssh davor, wenn der Mac ein anderer Rechner ist.",
    ),
    "connect.imessage_base_url": ("Address of the BlueBubbles server", "Adresse des Servers von BlueBubbles"),
    "connect.imessage_base_url_help": (
        "For `bluebubbles`: its window shows it.",
        "Für `bluebubbles`: sein Fenster zeigt sie.",
    ),
    "connect.imessage_password": (
        "Password of the BlueBubbles server",
        "Passwort des Servers von BlueBubbles",
    ),
    "connect.imessage_password_help": (
        "For `bluebubbles`: the server shows it under API & Webhooks.",
        "Für `bluebubbles`: der Server zeigt es unter API & Webhooks.",
    ),
    "connect.imessage_url": ("Address of Keryx", "Adresse von Keryx"),
    "connect.imessage_url_help": (
        "For `bluebubbles`: as the Mac reaches it. Without it Keryx asks for new messages every 15 seconds.",
        "Für `bluebubbles`: wie der Mac sie erreicht. Ohne sie fragt Keryx alle 15 Sekunden nach neuen Nachrichten.",
    ),
    "connect.imessage_bad_password": (
        "BlueBubbles refuses the password: copy it again and run `keryx gateway setup imessage`",
        "BlueBubbles lehnt das Passwort ab: kopiere es noch einmal und führ `keryx gateway setup imessage` aus",
    ),
    "connect.imessage_no_disk_access": (
        "imsg may not read the messages: on the Mac, allow Full Disk Access for the program that starts it (System Settings, Privacy & Security), and start Keryx again",
        "imsg darf die Nachrichten nicht lesen: erlaube auf dem Mac dem Programm, das es startet, Festplattenvollzugriff (Systemeinstellungen, Datenschutz & Sicherheit) und starte Keryx neu",
    ),
    # Feishu and Lark.
    "connect.feishu": ("Connect an app on Feishu or Lark.", "Eine App auf Feishu oder Lark verbinden."),
    "connect.feishu_intro": (
        """\
Make an app on Feishu or Lark first:

  1. open https://open.feishu.cn/app (https://open.larksuite.com/app for Lark),
     choose Create Custom App, and add the feature Bot
  2. on the page Permissions & Scopes, choose Batch import, and paste this:

{scopes}

  3. on the page Version Management & Release, create a version and publish it
  4. the page Credentials & Basic Info shows the App ID and the App Secret
""",
        """\
Leg zuerst eine App bei Feishu oder Lark an:

  1. öffne https://open.feishu.cn/app (https://open.larksuite.com/app für Lark),
     wähle Create Custom App und füge die Funktion Bot hinzu
  2. wähle auf der Seite Permissions & Scopes Batch import und füge dies ein:

{scopes}

  3. leg auf der Seite Version Management & Release eine Version an und
     veröffentliche sie
  4. die Seite Credentials & Basic Info zeigt die App ID und das App Secret
""",
    ),
    "connect.feishu_no_secret": (
        "the App Secret is missing: the page Credentials & Basic Info of the app shows it",
        "das App Secret fehlt: die Seite Credentials & Basic Info der App zeigt es",
    ),
    "connect.feishu_no_keys": (
        "encrypted posts need the Encrypt Key and the Verification Token, from the page Events & Callbacks, Encryption Strategy",
        "verschlüsselte Sendungen brauchen den Encrypt Key und das Verification Token, von der Seite Events & Callbacks, Encryption Strategy",
    ),
    "connect.feishu_bot": ("The bot is {name} ({app}).", "Der Bot ist {name} ({app})."),
    "connect.feishu_connection": (
        "receive them through a persistent connection",
        "receive them through a persistent connection",
    ),
    "connect.feishu_server": (
        "send them to the developer's server at {address}",
        "send them to the developer's server mit der Adresse {address}",
    ),
    "connect.feishu_way": (
        "while it runs, on the page Events & Callbacks of the app, choose for events and for callbacks: {way}",
        "während es läuft, wähle auf der Seite Events & Callbacks der App für Ereignisse und für Rückrufe: {way}",
    ),
    "connect.feishu_events": (
        "add the events {events} and the callback {callbacks}, and publish a new version of the app",
        "füg die Ereignisse {events} und den Rückruf {callbacks} hinzu und veröffentliche eine neue Version der App",
    ),
    "connect.feishu_write": (
        "write to the bot, or add it to a group and mention it",
        "schreib dem Bot, oder füge ihn einer Gruppe hinzu und nenn ihn",
    ),
    "connect.feishu_app_id": ("App ID", "App ID"),
    "connect.feishu_app_id_help": (
        "It is on the page Credentials & Basic Info of the app, and begins with cli_.",
        "Sie steht auf der Seite Credentials & Basic Info der App und beginnt mit cli_.",
    ),
    "connect.feishu_secret": ("App Secret", "App Secret"),
    "connect.feishu_secret_help": (
        "It is on the page Credentials & Basic Info of the app.",
        "Es steht auf der Seite Credentials & Basic Info der App.",
    ),
    "connect.feishu_platform": ("Platform", "Plattform"),
    "connect.feishu_platform_help": (
        "feishu is the one in China, lark the one elsewhere.",
        "feishu ist die in China, lark die für alle anderen Länder.",
    ),
    "connect.feishu_allow": (
        "Who may talk to the bot, as ids with commas",
        "Wer mit dem Bot sprechen darf, als Kennungen mit Kommas",
    ),
    "connect.feishu_allow_help": (
        "An open id begins with ou_. Whoever is not listed can ask for a pairing code.",
        "Eine Open ID beginnt mit ou_. Wer nicht in der Liste steht, kann um einen Code bitten.",
    ),
    "connect.feishu_mode": ("How Feishu reaches Keryx", "Wie Feishu Keryx erreicht"),
    "connect.feishu_mode_help": (
        "connection needs no public address; webhook lets Feishu post to Keryx.",
        "connection braucht keine öffentliche Adresse; mit webhook sendet Feishu an Keryx.",
    ),
    "connect.feishu_key": ("Encrypt Key", "Encrypt Key"),
    "connect.feishu_token": ("Verification Token", "Verification Token"),
    "connect.feishu_posts_help": (
        "For posts: it is on the page Events & Callbacks, Encryption Strategy.",
        "Für Sendungen: es steht auf der Seite Events & Callbacks, Encryption Strategy.",
    ),
    "connect.feishu_url_help": (
        "For posts, such as https://keryx.example.org.",
        "Für Sendungen, etwa https://keryx.example.org.",
    ),
    "connect.feishu_api": ("Address of the server API", "Adresse der Server-API"),
    "connect.feishu_api_help": (
        "Only for another one than that of Feishu or Lark.",
        "Nur für eine andere als die von Feishu oder Lark.",
    ),
    "connect.feishu_bad_secret": (
        "Feishu does not accept the App ID and the App Secret: take both from the page Credentials & Basic Info of the app and run `keryx gateway setup feishu`",
        "Feishu nimmt App ID und App Secret nicht an: hol beide von der Seite Credentials & Basic Info der App und führ `keryx gateway setup feishu` aus",
    ),
    "connect.feishu_no_bot": (
        "the app has no bot: add the feature Bot in the developer console, and publish a version of the app",
        "die App hat keinen Bot: füg in der Entwicklerkonsole die Funktion Bot hinzu und veröffentliche eine Version der App",
    ),
    # WhatsApp.
    "connect.whatsapp": ("Connect a number on WhatsApp.", "Eine Nummer auf WhatsApp verbinden."),
    "connect.whatsapp_intro": (
        """\
WhatsApp has two ways in. Choose `agent` for an agent of your own that only
you can write to: it needs no public address. Choose `cloud` for the number of
a business: it needs an app at developers.facebook.com and a public https
address.

For `agent`: in WhatsApp, open Settings, Agents, Create an agent; then open its
chat, Chat info, API key, and copy the key.

For `cloud`: in your app, add the product WhatsApp. API Setup shows the phone
number ID. In the business settings, make a system user, and for it a permanent
token with whatsapp_business_messaging and whatsapp_business_management. App
settings, Basic shows the app secret.""",
        """\
WhatsApp hat zwei Zugänge. Wähle `agent` für einen eigenen Agenten, an den nur
du schreiben kannst: er braucht keine öffentliche Adresse. Wähle `cloud` für die
Nummer eines Unternehmens: sie braucht eine App bei developers.facebook.com und
eine öffentliche https-Adresse.

Für `agent`: öffne in WhatsApp Einstellungen, Agenten, Agenten erstellen; öffne
dann seinen Chat, Chatinfo, API-Schlüssel, und kopiere den Schlüssel.

Für `cloud`: füg in deiner App das Produkt WhatsApp hinzu. API Setup zeigt die
Phone number ID. Leg in den Unternehmenseinstellungen einen Systembenutzer an
und für ihn ein dauerhaftes Token mit whatsapp_business_messaging und
whatsapp_business_management. App settings, Basic zeigt das App Secret.""",
    ),
    "connect.whatsapp_terms": (
        "Meta's terms for the Cloud API bar general assistants as the main purpose of a number since 15 January 2026, except for people with numbers of Italy and Brazil. An assistant for the customers of a business is allowed.",
        "Metas Bedingungen für die Cloud API verbieten seit dem 15. Januar 2026 allgemeine Assistenten als Hauptzweck einer Nummer, außer für Personen mit Nummern aus Italien und Brasilien. Ein Assistent für die Kunden eines Unternehmens ist erlaubt.",
    ),
    "connect.whatsapp_no_token": ("the token is missing", "das Token fehlt"),
    "connect.whatsapp_agent": ("WhatsApp knows the agent.", "WhatsApp kennt den Agenten."),
    "connect.whatsapp_write_agent": ("write to the agent in WhatsApp", "schreib dem Agenten in WhatsApp"),
    "connect.whatsapp_agent_note": (
        "WhatsApp lets an agent talk with its creator only, and takes 12 messages a minute from it.",
        "WhatsApp lässt einen Agenten nur mit der Person sprechen, die ihn erstellt hat, und nimmt von ihm 12 Nachrichten in der Minute an.",
    ),
    "connect.whatsapp_no_secret": (
        "the app secret is missing: App settings, Basic shows it",
        "das App Secret fehlt: App settings, Basic zeigt es",
    ),
    "connect.whatsapp_https": (
        "Meta posts to https addresses only: write one, such as https://keryx.example.org",
        "Meta sendet nur an https-Adressen: schreib eine, etwa https://keryx.example.org",
    ),
    "connect.whatsapp_wrong_id": (
        "write the Phone number ID, such as 106540352242922, not the number itself: API Setup in the app shows it",
        "schreib die Phone number ID, etwa 106540352242922, nicht die Nummer selbst: API Setup in der App zeigt sie",
    ),
    "connect.whatsapp_unknown_id": (
        "{reason}. Either {id} is not the Phone number ID, which API Setup in the app shows and which is not the number itself, or the token has no right to it",
        "{reason}. Entweder ist {id} nicht die Phone number ID, die API Setup in der App zeigt und die nicht die Nummer selbst ist, oder das Token hat kein Recht darauf",
    ),
    "connect.whatsapp_other_form": (
        "WhatsApp answers in another form: check base_url",
        "WhatsApp antwortet in einer anderen Form: prüf base_url",
    ),
    "connect.whatsapp_hook": (
        "in your app, under WhatsApp, Configuration, set the callback URL {address} and the verify token {token}",
        "setz in deiner App unter WhatsApp, Configuration, die Callback URL {address} und das Verify token {token}",
    ),
    "connect.whatsapp_number": ("The number is {number} ({name}).", "Die Nummer ist {number} ({name})."),
    "connect.no_name": ("no name", "ohne Namen"),
    "connect.whatsapp_subscribe": (
        "in your app, under WhatsApp, Configuration, subscribe to the webhook field `messages`",
        "abonniere in deiner App unter WhatsApp, Configuration, das Webhook-Feld `messages`",
    ),
    "connect.whatsapp_write": (
        "write to the number; it answers with a code; let yourself in: keryx pairing approve {platform} CODE --operator",
        "schreib an die Nummer; sie antwortet mit einem Code; gib dir damit Zugang: keryx pairing approve {platform} CODE --operator",
    ),
    "connect.whatsapp_mode": ("Which way in", "Welcher Zugang"),
    "connect.whatsapp_mode_help": (
        "`agent` for an agent of your own, `cloud` for the number of a business.",
        "`agent` für einen eigenen Agenten, `cloud` für die Nummer eines Unternehmens.",
    ),
    "connect.whatsapp_token": (
        "Key of the agent, or access token",
        "Schlüssel des Agenten oder Zugangstoken",
    ),
    "connect.whatsapp_token_help": (
        "For `agent` the key from Chat info, API key; for `cloud` the permanent token of a system user.",
        "Für `agent` der Schlüssel aus Chatinfo, API-Schlüssel; für `cloud` das dauerhafte Token eines Systembenutzers.",
    ),
    "connect.whatsapp_number_id": ("Phone number ID", "Phone number ID"),
    "connect.whatsapp_number_id_help": (
        "For `cloud`: API Setup in the app shows it. It is not the number itself.",
        "Für `cloud`: API Setup in der App zeigt sie. Sie ist nicht die Nummer selbst.",
    ),
    "connect.whatsapp_secret": ("App secret", "App Secret"),
    "connect.whatsapp_secret_help": (
        "For `cloud`: App settings, Basic shows it.",
        "Für `cloud`: App settings, Basic zeigt es.",
    ),
    "connect.whatsapp_verify": ("Verify token", "Verify token"),
    "connect.whatsapp_verify_help": (
        "For `cloud`: any text of your choice. One is made if there is none.",
        "Für `cloud`: ein beliebiger Text. Ohne Angabe wird einer gemacht.",
    ),
    "connect.whatsapp_url_help": (
        "For `cloud`: an https address. Without it you set the callback URL in the app yourself.",
        "Für `cloud`: eine https-Adresse. Ohne sie setzt du die Callback URL in der App selbst.",
    ),
    "connect.whatsapp_api_help": (
        "Only for another one than Meta's.",
        "Nur für eine andere als die von Meta.",
    ),
    "connect.whatsapp_bad_token": (
        "WhatsApp refuses the access token: make a permanent one for a system user and run `keryx gateway setup whatsapp`",
        "WhatsApp lehnt das Zugangstoken ab: leg ein dauerhaftes für einen Systembenutzer an und führ `keryx gateway setup whatsapp` aus",
    ),
    "connect.whatsapp_bad_key": (
        "WhatsApp refuses the key of the agent: copy it again from Chat info, API key, and run `keryx gateway setup whatsapp`",
        "WhatsApp lehnt den Schlüssel des Agenten ab: kopiere ihn noch einmal aus Chatinfo, API-Schlüssel, und führ `keryx gateway setup whatsapp` aus",
    ),
    # WeChat.
    "connect.wechat": (
        "Connect a bot on WeChat by a QR code.",
        "Einen Bot auf WeChat mit einem QR-Code verbinden.",
    ),
    "connect.wechat_intro": (
        """\
WeChat connects a bot of your own to Keryx, to which you write in a direct chat.
Have your phone at hand: a QR code is shown, which you scan with WeChat. You may
talk to the bot then; others need a code, as everywhere.""",
        """\
WeChat verbindet einen eigenen Bot mit Keryx, an den du in einem direkten Chat
schreibst. Halte dein Telefon bereit: ein QR-Code wird gezeigt, den du mit WeChat
scannst. Danach darfst du mit dem Bot sprechen; andere brauchen wie überall einen
Code.""",
    ),
    "connect.wechat_foreign": (
        "WeChat names an address that does not belong to it: nothing was written",
        "WeChat nennt eine Adresse, die ihm nicht gehört: nichts wurde geschrieben",
    ),
    "connect.wechat_foreign_host": (
        "WeChat names a host that does not belong to it: nothing was written",
        "WeChat nennt einen Rechner, der ihm nicht gehört: nichts wurde geschrieben",
    ),
    "connect.wechat_bot": ("The bot is connected to Keryx.", "Der Bot ist mit Keryx verbunden."),
    "connect.wechat_write": ("write to the bot in WeChat", "schreib dem Bot in WeChat"),
    "connect.wechat_note": (
        "WeChat accepts answers for 24 hours after you have written, and 10 in a row. What comes later is held and goes out when you write again.",
        "WeChat nimmt Antworten bis 24 Stunden nach deiner Nachricht an, und 10 hintereinander. Was später kommt, wird gehalten und gesendet, wenn du wieder schreibst.",
    ),
    "connect.wechat_scan_form": (
        "open {address} as a QR code and scan it with WeChat; then go on with login = {code}",
        "öffne {address} als QR-Code und scanne ihn mit WeChat; mach dann mit login = {code} weiter",
    ),
    "connect.wechat_go_on": ("go on with login = {code}", "mach mit login = {code} weiter"),
    "connect.wechat_again": (
        "start again when your phone is at hand",
        "beginne neu, wenn dein Telefon bereitliegt",
    ),
    "connect.wechat_not_confirmed": (
        "nobody has confirmed the login within {seconds} seconds: {reason}",
        "niemand hat die Anmeldung innerhalb von {seconds} Sekunden bestätigt: {reason}",
    ),
    "connect.wechat_no_code": ("WeChat gave no code to scan", "WeChat hat keinen Code zum Scannen gegeben"),
    "connect.wechat_scan": (
        "Scan this code with WeChat, and confirm on the phone:\n\n{code}\n",
        "Scanne diesen Code mit WeChat und bestätige auf dem Telefon:\n\n{code}\n",
    ),
    "connect.wechat_scan_elsewhere": (
        "If it cannot be read, show this address as a QR code elsewhere: {address}\n",
        "Ist er nicht lesbar, zeig diese Adresse woanders als QR-Code: {address}\n",
    ),
    "connect.wechat_expired": (
        "the code has expired: begin again without `login`",
        "der Code ist abgelaufen: beginne neu ohne `login`",
    ),
    "connect.wechat_all_expired": (
        "the codes have expired: start again when your phone is at hand",
        "die Codes sind abgelaufen: beginne neu, wenn dein Telefon bereitliegt",
    ),
    "connect.wechat_next_code": (
        "The code has expired. Here is another one.",
        "Der Code ist abgelaufen. Hier ist ein anderer.",
    ),
    "connect.wechat_number_form": (
        "WeChat shows a number on the phone: go on with login = {code} and verify_code = the number",
        "WeChat zeigt auf dem Telefon eine Zahl: mach mit login = {code} und verify_code = der Zahl weiter",
    ),
    "connect.wechat_ask_number": (
        "The number that WeChat shows on the phone",
        "Die Zahl, die WeChat auf dem Telefon zeigt",
    ),
    "connect.wechat_ask_number_again": (
        "This was another number. The number that WeChat shows on the phone",
        "Das war eine andere Zahl. Die Zahl, die WeChat auf dem Telefon zeigt",
    ),
    "connect.wechat_connected": (
        "this bot is connected already: disconnect it in WeChat, or use the token that you have",
        "dieser Bot ist schon verbunden: trenn ihn in WeChat, oder nimm das Token, das du hast",
    ),
    "connect.wechat_scanned": (
        "Scanned. Confirm the login on the phone.",
        "Gescannt. Bestätige die Anmeldung auf dem Telefon.",
    ),
    "connect.wechat_no_token": (
        "WeChat has confirmed the login and gave no token: try again",
        "WeChat hat die Anmeldung bestätigt und kein Token gegeben: versuch es noch einmal",
    ),
    "connect.wechat_login": ("Login that was begun", "Begonnene Anmeldung"),
    "connect.wechat_login_help": (
        "For forms and programs, which show the code themselves: its name, as the first call tells it.",
        "Für Formulare und Programme, die den Code selbst zeigen: sein Name, wie der erste Aufruf ihn nennt.",
    ),
    "connect.wechat_number": ("Number on the phone", "Zahl auf dem Telefon"),
    "connect.wechat_number_help": (
        "For forms and programs: the number, if WeChat shows one.",
        "Für Formulare und Programme: die Zahl, wenn WeChat eine zeigt.",
    ),
    "connect.wechat_api_help": (
        "Only for another one than Tencent's.",
        "Nur für eine andere als die von Tencent.",
    ),
    "connect.wechat_cdn": ("Address of the CDN", "Adresse des CDN"),
    "connect.wechat_ended": (
        "WeChat has ended the session of this bot: log in anew with `keryx gateway setup wechat`",
        "WeChat hat die Sitzung dieses Bots beendet: melde ihn mit `keryx gateway setup wechat` neu an",
    ),
    # Webhooks.
    "connect.webhook": (
        "Connect a program of your own by webhooks.",
        "Ein eigenes Programm über Webhooks verbinden.",
    ),
    "connect.webhook_intro": (
        """\
Your program posts messages to Keryx as signed JSON, and Keryx posts the
answers to an address of your program. Both sides share one secret, which the
setup makes. Who may talk is told by the `user` that your program writes into a
message; * means everybody that it posts for.""",
        """\
Dein Programm sendet Nachrichten als signiertes JSON an Keryx, und Keryx sendet
die Antworten an eine Adresse deines Programms. Beide Seiten teilen ein
Geheimnis, das die Einrichtung macht. Wer sprechen darf, sagt der `user`, den
dein Programm in eine Nachricht schreibt; * heißt alle, für die es sendet.""",
    ),
    "connect.webhook_answers": (
        "Answers are posted to {address}.",
        "Antworten werden an {address} gesendet.",
    ),
    "connect.webhook_secret_step": (
        "give the secret to the program that posts messages: it signs them, and checks what Keryx posts",
        "gib das Geheimnis dem Programm, das Nachrichten sendet: es signiert sie und prüft, was Keryx sendet",
    ),
    "connect.webhook_post": (
        "let the program post messages to {path} at the address of Keryx, as docs/how-to/webhook.md shows",
        "lass das Programm Nachrichten an {path} unter der Adresse von Keryx senden, wie docs/how-to/webhook.md es zeigt",
    ),
    "connect.webhook_url": ("Address of your program", "Adresse deines Programms"),
    "connect.webhook_url_help": ("Answers are posted there.", "Dorthin werden Antworten gesendet."),
    "connect.webhook_secret": ("Secret", "Geheimnis"),
    "connect.webhook_secret_help": (
        "whsec_ and the base64 of at least 24 random bytes. Without one the present secret stays, or one is made.",
        "whsec_ und mindestens 24 zufällige Bytes in base64. Ohne Angabe bleibt das jetzige Geheimnis, oder eines wird gemacht.",
    ),
    "connect.webhook_bad_secret": (
        "webhook.secret: write whsec_ and the base64 of at least 24 random bytes",
        "webhook.secret: schreib whsec_ und mindestens 24 zufällige Bytes in base64",
    ),
}

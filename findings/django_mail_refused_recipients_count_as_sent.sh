#!/usr/bin/env bash
# Django 5.2.19 before a mail server by aiosmtpd 1.4.6; Python 3.11 or newer, Linux. Django 6.1.3 does the same.
#
# Expected: an EmailMessage to two addresses, of which the server takes one and answers 450 ("try again later") to the
#           other, raises, or send() says that somebody did not get it: the caller has to try again.
# Seen:     send() returns 1, as if all had got it, and nothing is logged. smtplib returns the refused addresses
#           (SMTP.sendmail, "returns a dictionary, with one entry for each recipient that was refused"), and Django's
#           backend drops what it returns. Only when each address is refused does it raise SMTPRecipientsRefused. So who
#           must not be forgotten gets a message of their own.
#
#   both in one message: send() returned 1, the server took ['bob@example.com']
#   ada alone: SMTPRecipientsRefused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet django==5.2.19 aiosmtpd==1.4.6
seen=$("$folder/venv/bin/python" - << 'PYTHON'
import socket
import warnings

warnings.simplefilter("ignore")
from aiosmtpd.controller import Controller
from django.conf import settings

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
settings.configure(EMAIL_HOST="127.0.0.1", EMAIL_PORT=port, USE_TZ=True)

import django

django.setup()
from django.core.mail import EmailMessage, get_connection

took = []


class Server:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("ada"):
            return "450 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        took.extend(envelope.rcpt_tos)
        return "250 OK"


server = Controller(Server(), hostname="127.0.0.1", port=port)
server.start()


def send(*to):
    backend = get_connection("django.core.mail.backends.smtp.EmailBackend")
    try:
        return f"send() returned {EmailMessage('x', 'x', 'a@example.com', bcc=to, connection=backend).send()}"
    except Exception as error:
        return type(error).__name__


print(f"both in one message: {send('ada@example.com', 'bob@example.com')}, the server took {took}")
print(f"ada alone: {send('ada@example.com')}")
server.stop()
PYTHON
)
echo "$seen"
[ "$seen" = "both in one message: send() returned 1, the server took ['bob@example.com']
ada alone: SMTPRecipientsRefused" ]

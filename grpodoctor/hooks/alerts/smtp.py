"""Mail."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from grpodoctor.hooks.alerts.channel import Alert, Channel, ChannelError

TIMEOUT_SECONDS = 15.0
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


class SmtpChannel(Channel):
    """Sends mail through the server `host`, by default with STARTTLS on port 587."""

    def send(self, alert: Alert) -> None:
        """Deliver an alert."""
        message = self._message(alert)
        try:
            with self._connected() as server:
                if "user-env" in self.options:
                    password = self.secret("password-env") if "password-env" in self.options else ""
                    server.login(self.secret("user-env"), password)
                server.send_message(message)
        except smtplib.SMTPResponseException as error:
            raise ChannelError(f"the mail server answered with code {error.smtp_code}") from None
        except TimeoutError:
            raise ChannelError(f"no answer within {TIMEOUT_SECONDS:g} seconds") from None
        except smtplib.SMTPNotSupportedError:
            raise ChannelError("the mail server offers no STARTTLS, or no login") from None
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            raise ChannelError(f"the certificate of the mail server is not valid: {why}") from None
        except ssl.SSLError:
            raise ChannelError("the mail server speaks no TLS on this port") from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise ChannelError(f"no mail was sent: {reason or type(error).__name__}") from None

    def _connected(self) -> smtplib.SMTP:
        security = self.options.get("security", "starttls")
        host, port = self.options["host"], self.options.get("port", _PORTS[security])
        if security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=context)
        server = smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
        if security == "starttls":
            try:
                server.starttls(context=ssl.create_default_context())
            except BaseException:
                server.close()
                raise
        return server

    def _message(self, alert: Alert) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = f"[grpodoctor] {alert.title}"
        message["From"] = self.options["from"]
        message["To"] = ", ".join(self.options["to"])
        message["Date"] = formatdate()
        message.set_content(alert.text + "\n")
        return message

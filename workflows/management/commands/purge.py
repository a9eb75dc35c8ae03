from workflows import extension

Command = extension.command("purge")

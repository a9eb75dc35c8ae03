from workflows import extension

Command = extension.command("relayoutbox")

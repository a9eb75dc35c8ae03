from workflows import extension

Command = extension.command("consumesqs")

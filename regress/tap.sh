#!/bin/sh
# tap.sh PROGRAM [ARGUMENT ...]
# Runs a cmocka test program and mends its TAP: cmocka says "not ok N # SKIP
# NAME" for a skipped test. What the test printed just before is its reason.
# The exit status is the program's, brought past the pipe on descriptor 3.
exec 4>&1
status=$({
	{
		CMOCKA_MESSAGE_OUTPUT=TAP "$@" 3>&-
		echo $? >&3
	} | awk '
	/^not ok [0-9]+ # SKIP/ {
		name = $0
		sub(/^not ok [0-9]+ # SKIP */, "", name)
		print "ok " $3 " - " name " # SKIP " reason
		next
	}
	/^(ok|not ok|#|1\.\.)/ { reason = "" }
	!/^(ok|not ok|#|1\.\.)/ { reason = $0 }
	{ print; fflush() }
	' >&4
} 3>&1)
exit "$status"

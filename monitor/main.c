#include "config.h"

#include <sys/stat.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sodium.h>

#include "commands.h"
#include "error.h"
#include "log.h"

#ifdef SANITIZERS
/* The leak checker wants ptrace(2), which a restricted process has not. */
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

/* 0 to 2 must be open, or a state file could get one of these numbers. */
static void
open_standard_descriptors(void)
{
	int fd;

	do {
		if ((fd = open("/dev/null", O_RDWR)) == -1)
			_exit(STATUS_ERROR);
	} while (fd <= STDERR_FILENO);
	close(fd);
}

static int
finish_output(int status)
{
	if (fflush(stdout) == EOF) {
		log_warn("standard output");
		return status == STATUS_OK ? STATUS_ERROR : status;
	}
	return status;
}

int
main(int argc, char **argv)
{
	struct options o;
	char *error = NULL;
	int status;

	open_standard_descriptors();
	umask(077);
	log_init(NULL, 0);
	if (options_parse(&o, argc, argv, &error) == -1) {
		log_warnx("%s", error);
		free(error);
		return STATUS_CONFIG;
	}
	log_init(NULL, o.verbose);
	if (sodium_init() == -1)
		fatalx("libsodium cannot be initialised");
	switch (o.command) {
	case CMD_RUN:
		status = command_run(&o);
		break;
	case CMD_PAIR:
		status = command_pair(&o);
		break;
	case CMD_CLEAR:
		status = command_clear(&o);
		break;
	case CMD_RESET:
		status = command_reset(&o);
		break;
	case CMD_EXEC:
		status = command_exec(&o);
		break;
	case CMD_SELFTEST:
		status = command_selftest(&o);
		break;
	case CMD_VERSION:
		printf("librechat-code %s\n", PACKAGE_VERSION);
		status = STATUS_OK;
		break;
	case CMD_HELP:
	case CMD_MAX:
	default:
		fputs(options_usage, stdout);
		status = STATUS_OK;
		break;
	}
	options_free(&o);
	return finish_output(status);
}

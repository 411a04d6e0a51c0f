#include "config.h"

#include <sys/types.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "harness.h"
#include "log.h"
#include "observe.h"
#include "private.h"
#include "world.h"

/*
 * The storage of a whole worker on a disk that is full and in the hands of
 * others, in a mount namespace of its own (private.h).
 */

static char cannot_mount[256]; /* why, or "" */

static void
need_mounts(void)
{
	if (cannot_mount[0] == '\0')
		return;
	print_message("%s\n", cannot_mount);
	skip();
}

static void
put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd == -1 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fatal("%s", path);
	close(fd);
}

/* ---- the world and its disk ---- */

struct disk {
	struct world w;
	char *identity;
	char *fill;
};

/* HOME of the worker on a small file system. */
static void
begin(struct disk *d, const char *options, const char *ttl)
{
	memset(d, 0, sizeof(*d));
	world_init(&d->w, 0);
	if (options != NULL &&
	    mount("tmpfs", d->w.home, "tmpfs", MS_NOSUID, options) == -1)
		fatal("tmpfs");
	d->identity = xasprintf(
	    "%s/.config/librechat/code/test-worker.json", d->w.home);
	d->fill = xasprintf("%s/fill", d->w.home);
	world_server(&d->w, "--credential-ttl", ttl, NULL);
}

static void
finish(struct disk *d)
{
	/* The worker and the server go first. */
	if (d->w.worker > 0) {
		world_signal(&d->w, SIGKILL);
		(void)world_worker_end(&d->w, 10000);
	}
	(void)umount2(d->identity, MNT_DETACH);
	(void)umount2(d->w.home, MNT_DETACH);
	free(d->identity);
	free(d->fill);
	world_free(&d->w);
}

static void
fill_disk(struct disk *d)
{
	static char block[4096];
	int fd = open(d->fill, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_not_equal(fd, -1);
	memset(block, 'x', sizeof(block));
	while (write(fd, block, sizeof(block)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
}

static int
pair(struct world *w)
{
	struct json *j;
	char *code;
	int r;

	j = world_control(w, "pair", "{\"workerId\":\"test-worker\"}");
	assert_non_null(j);
	code = xasprintf("%s\n", json_get_str(j, "code"));
	json_free(j);
	r = world_command(w, code, "pair", w->url, "-", NULL);
	free(code);
	return r;
}

/* Entries of the identity's directory. */
static int
count_entries(struct disk *d)
{
	char *dir = xasprintf("%s/.config/librechat/code", d->w.home);
	struct dirent *de;
	DIR *list;
	int n = 0;

	if ((list = opendir(dir)) != NULL) {
		while ((de = readdir(list)) != NULL)
			n += de->d_name[0] != '.';
		closedir(list);
	}
	free(dir);
	return n;
}

/* ---- a full disk ---- */

static void
first_pairing_keeps_the_code(void **state)
{
	struct disk d;

	(void)state;
	need_mounts();
	begin(&d, "size=64k,mode=0700", "900");
	fill_disk(&d);
	assert_int_equal(pair(&d.w), 1);
	command_said(&d.w, "No space left on device");
	assert_int_equal(count_requests(&d.w, "redeem", 0), 0);
	assert_int_equal(count_entries(&d), 0);
	assert_int_equal(unlink(d.fill), 0);
	assert_int_equal(pair(&d.w), 0);
	assert_int_equal(count_requests(&d.w, "redeem", 0), 1);
	finish(&d);
}

static void
no_inode_is_left_for_the_identity(void **state)
{
	struct disk d;
	char *name;
	int i;

	(void)state;
	need_mounts();
	/* One step further each time, until it works. */
	for (i = 2; i < 40; i++) {
		name = xasprintf("size=64k,mode=0700,nr_inodes=%d", i);
		begin(&d, name, "900");
		free(name);
		if (pair(&d.w) == 0) {
			finish(&d);
			break;
		}
		command_said(&d.w, "No space left on device");
		assert_int_equal(count_requests(&d.w, "redeem", 0), 0);
		finish(&d);
	}
	assert_true(i > 8 && i < 40);
}

static void
second_pairing_keeps_the_identity(void **state)
{
	struct disk d;
	char *before, *after;

	(void)state;
	need_mounts();
	begin(&d, "size=64k,mode=0700", "900");
	assert_int_equal(pair(&d.w), 0);
	before = file_text(d.identity);
	fill_disk(&d);
	assert_int_equal(pair(&d.w), 1);
	command_said(&d.w, "No space left on device");
	assert_int_equal(count_requests(&d.w, "redeem", 0), 1);
	after = file_text(d.identity);
	assert_string_equal(before, after);
	assert_int_equal(count_entries(&d), 1);
	free(before);
	free(after);
	finish(&d);
}

static void
rotation_keeps_the_old_identity(void **state)
{
	static const char read_request[] =
	    "{\"protocolVersion\":1,\"operation\":\"read_file\","
	    "\"workspaceId\":\"primary\",\"path\":\"text\"}";
	struct disk d;
	struct json *j;
	char *before, *after, *text;
	double end;

	(void)state;
	need_mounts();
	/* Due when a second old: credential_is_rotated_and_kept says why. */
	begin(&d, "size=64k,mode=0700", "121");
	end = world_now() + 1200;
	assert_int_equal(pair(&d.w), 0);
	while (world_now() < end)
		usleep(10000);
	before = file_text(d.identity);
	fill_disk(&d);
	world_worker(&d.w, NULL);
	assert_true(world_log_wait(&d.w, "was not stored", 20000));
	assert_true(world_log_has(&d.w, "No space left on device"));
	after = file_text(d.identity);
	assert_string_equal(before, after);
	free(after);
	/* With space again it goes on by itself. */
	assert_int_equal(unlink(d.fill), 0);
	end = world_now() + 30000;
	do {
		assert_true(world_now() < end);
		after = file_text(d.identity);
		if (strcmp(before, after) != 0)
			break;
		free(after);
		usleep(5000);
	} while (1);
	assert_true(world_wait(&d.w, "leasing", 20000));
	text = xasprintf("%s/text", d.w.project);
	put_text(text, "one\n");
	assert_int_equal(chmod(text, 0644), 0);
	free(text);
	assert_int_equal(world_call(&d.w, read_request, &j), 200);
	json_free(j);
	assert_int_equal(count_entries(&d), 1);
	free(before);
	free(after);
	finish(&d);
}

static void
nothing_runs_without_its_marker(void **state)
{
	struct disk d;
	struct pending p;
	struct stat st;
	char *body, *ran;
	int r;

	(void)state;
	need_mounts();
	begin(&d, "size=64k,mode=0700", "900");
	world_start(&d.w);
	fill_disk(&d);
	body = world_command_body("touch ran", 10000);
	world_call_start(&d.w, body, &p);
	free(body);
	assert_true(world_log_wait(&d.w, "was not armed", 20000));
	assert_true(world_log_has(&d.w, "No space left on device"));
	r = world_worker_end(&d.w, 20000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) == 1);
	ran = xasprintf("%s/ran", d.w.project);
	assert_int_equal(stat(ran, &st), -1);
	/* What could not be written completely is not left half. */
	assert_int_equal(world_markers(&d.w), 0);
	world_call_abort(&p);
	free(ran);
	finish(&d);
}

static void
writable_start_needs_its_record(void **state)
{
	struct disk d;
	int r;

	(void)state;
	need_mounts();
	begin(&d, "size=64k,mode=0700", "900");
	assert_int_equal(pair(&d.w), 0);
	fill_disk(&d);
	world_worker(&d.w, "--allow-workspace-writes", NULL);
	r = world_worker_end(&d.w, 20000);
	assert_true(r != -1 && WIFEXITED(r) && WEXITSTATUS(r) == 1);
	assert_true(world_log_has(&d.w, "No space left on device"));
	assert_int_equal(count_requests(&d.w, "register", 0), 0);
	finish(&d);
}

/* ---- hostile storage ---- */

static void
refused(struct disk *d, const char *text)
{
	assert_int_equal(world_command(&d->w, NULL, "run", "--worker-dir",
			     d->w.project, NULL),
	    78);
	command_said(&d->w, text);
	assert_int_equal(count_requests(&d->w, "register", 0), 0);
}

static void
writable_ancestor(void **state)
{
	struct disk d;
	char *dir;

	(void)state;
	need_mounts();
	begin(&d, NULL, "900");
	assert_int_equal(pair(&d.w), 0);
	dir = xasprintf("%s/.config/librechat", d.w.home);
	assert_int_equal(chmod(dir, 0770), 0);
	refused(&d, "is writable by other accounts (mode 770)");
	assert_int_equal(pair(&d.w), 78);
	command_said(&d.w, "is writable by other accounts (mode 770)");
	assert_int_equal(count_requests(&d.w, "redeem", 0), 1);
	free(dir);
	finish(&d);
}

static void
identity_of_a_wrong_kind(void **state)
{
	struct disk d;
	char *other, *good;

	(void)state;
	need_mounts();
	begin(&d, NULL, "900");
	assert_int_equal(pair(&d.w), 0);
	good = file_text(d.identity);
	other = xasprintf("%s/other", d.w.home);

	assert_int_equal(link(d.identity, other), 0);
	refused(&d, "has 2 names (hard links)");
	assert_int_equal(pair(&d.w), 1);
	command_said(&d.w, "has 2 names (hard links)");
	assert_int_equal(unlink(other), 0);

	assert_int_equal(chmod(d.identity, 0640), 0);
	refused(&d, "accessible beyond its owner (mode 640)");

	assert_int_equal(rename(d.identity, other), 0);
	assert_int_equal(mkfifo(d.identity, 0600), 0);
	refused(&d, "is not a regular file");
	assert_int_equal(unlink(d.identity), 0);

	assert_int_equal(mkdir(d.identity, 0700), 0);
	refused(&d, "is a directory");
	assert_int_equal(rmdir(d.identity), 0);

	put_text(d.identity, "");
	refused(&d, "it is empty");
	assert_int_equal(unlink(d.identity), 0);

	assert_int_equal(symlink(d.identity, d.identity), 0);
	refused(&d, "Too many storage symlinks");
	assert_int_equal(unlink(d.identity), 0);

	refused(&d, "pair this worker first");
	/* None of the attempts has spent a code or changed what was good. */
	assert_int_equal(count_requests(&d.w, "redeem", 0), 1);
	free(good);
	free(other);
	finish(&d);
}

static void
identity_of_another_owner(void **state)
{
	struct disk d;

	(void)state;
	need_mounts();
	begin(&d, NULL, "900");
	assert_int_equal(pair(&d.w), 0);
	if (getuid() == 0)
		assert_int_equal(chown(d.identity, 61235, 61235), 0);
	else {
		/* Everything of the machine has an unknown owner here. */
		assert_int_equal(unlink(d.identity), 0);
		assert_int_equal(symlink("/etc/passwd", d.identity), 0);
	}
	refused(&d, "is owned by another account (uid ");
	finish(&d);
}

static void
identity_that_is_a_mount_point(void **state)
{
	struct disk d;
	char *before, *after;

	(void)state;
	need_mounts();
	begin(&d, NULL, "900");
	assert_int_equal(pair(&d.w), 0);
	before = file_text(d.identity);
	assert_int_equal(mount(d.identity, d.identity, NULL, MS_BIND, NULL), 0);
	assert_int_equal(pair(&d.w), 1);
	command_said(
	    &d.w, "is a mount point and cannot be atomically replaced");
	assert_int_equal(count_requests(&d.w, "redeem", 0), 1);
	after = file_text(d.identity);
	assert_string_equal(before, after);
	/* It can be used; only its replacement is impossible. */
	world_worker(&d.w, NULL);
	assert_true(world_wait(&d.w, "leasing", 20000));
	free(before);
	free(after);
	finish(&d);
}

/*
 * Another process keeps swapping the link that leads to the identity between
 * a good directory and one that others can write to. Whatever moment it is
 * read at, the other identity is never used.
 */
static void
link_that_is_swapped(void **state)
{
	struct disk d;
	char *link_path, *next, *good, *bad, *identity, *text, *p, *log, *file;
	int i, used = 0, status;
	pid_t pid;

	(void)state;
	need_mounts();
	begin(&d, NULL, "900");
	assert_int_equal(pair(&d.w), 0);
	link_path = xasprintf("%s/.config", d.w.home);
	next = xasprintf("%s/next", d.w.home);
	good = xasprintf("%s/good", d.w.home);
	bad = xasprintf("%s/bad", d.w.home);
	file = xasprintf("%s/command.log", d.w.dir);
	assert_int_equal(rename(link_path, good), 0);
	/* The same identity for another worker, in a directory for all. */
	assert_int_equal(mkdir(bad, 0700), 0);
	identity = xasprintf("%s/librechat", bad);
	assert_int_equal(mkdir(identity, 0700), 0);
	free(identity);
	identity = xasprintf("%s/librechat/code", bad);
	assert_int_equal(mkdir(identity, 0700), 0);
	free(identity);
	identity = xasprintf("%s/librechat/code/test-worker.json", good);
	text = file_text(identity);
	free(identity);
	p = strstr(text, "test-worker");
	assert_non_null(p);
	memcpy(p, "evil-worker", 11);
	identity = xasprintf("%s/librechat/code/test-worker.json", bad);
	put_text(identity, text);
	assert_int_equal(chmod(bad, 0777), 0);
	assert_int_equal(symlink(good, link_path), 0);
	if ((pid = fork()) == 0) {
		for (i = 0;; i++) {
			(void)unlink(next);
			(void)!symlink(i & 1 ? good : bad, next);
			(void)rename(next, link_path);
		}
	}
	for (i = 0; i < 60; i++) {
		(void)unlink(file);
		status = world_command(&d.w, NULL, "clear-workspace-quarantine",
		    "--worker-dir", d.w.project, NULL);
		free(text);
		text = file_text(file);
		log = strstr(text, "evil-worker");
		if (log != NULL)
			fail_msg("used what is not checked: %s", text);
		used += status == 0;
		if (status != 0 && strstr(text, "writable by other") == NULL &&
		    strstr(text, "No such file") == NULL &&
		    strstr(text, "there is no identity") == NULL &&
		    strstr(text, "changed during verification") == NULL)
			fail_msg("%s", text);
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	print_message("# %d of 60 were served from the good directory\n", used);
	free(text);
	free(identity);
	free(link_path);
	free(next);
	free(good);
	free(bad);
	free(file);
	finish(&d);
}

/* ---- hostile markers: whatever they are, they block ---- */

static char *
only_marker(struct world *w)
{
	char *command, *file, *path;

	file = xasprintf("%s/found", w->dir);
	command = xasprintf(
	    "find %s/.local/state -name 'id-*.json' >%s", w->home, file);
	assert_int_equal(system(command), 0);
	path = file_text(file);
	path[strcspn(path, "\n")] = '\0';
	free(command);
	free(file);
	return path;
}

static void
marker_blocks(struct disk *d, const char *text)
{
	assert_int_equal(world_command(&d->w, NULL, "run", "--worker-dir",
			     d->w.project, "--allow-workspace-writes", NULL),
	    78);
	command_said(&d->w, text);
}

static void
marker_of_a_wrong_kind(void **state)
{
	struct disk d;
	struct pending p;
	char *body, *begun, *marker, *other;
	int before;

	(void)state;
	need_mounts();
	begin(&d, NULL, "900");
	world_start(&d.w);
	body = world_command_body("touch begun; sleep 97531", 60000);
	world_call_start(&d.w, body, &p);
	free(body);
	begun = xasprintf("%s/begun", d.w.project);
	assert_true(world_file_wait(begun, 20000));
	world_signal(&d.w, SIGKILL);
	(void)world_worker_end(&d.w, 10000);
	world_call_abort(&p);
	marker = only_marker(&d.w);
	other = xasprintf("%s.x", marker);
	before = count_requests(&d.w, "register", 0);

	marker_blocks(&d, "Workspace mutations are quarantined since");
	assert_int_equal(link(marker, other), 0);
	marker_blocks(&d, "has 2 names (hard links)");
	assert_int_equal(unlink(other), 0);
	assert_int_equal(chmod(marker, 0644), 0);
	marker_blocks(&d, "accessible beyond its owner (mode 644)");
	assert_int_equal(chmod(marker, 0600), 0);
	put_text(marker, "");
	marker_blocks(&d, "Invalid workspace quarantine file");
	assert_int_equal(unlink(marker), 0);
	assert_int_equal(mkfifo(marker, 0600), 0);
	marker_blocks(&d, "is not a regular file");
	assert_int_equal(unlink(marker), 0);
	assert_int_equal(symlink("/nonexistent", marker), 0);
	marker_blocks(&d, marker);
	assert_int_equal(world_command(&d.w, NULL, "clear-workspace-quarantine",
			     "--worker-dir", d.w.project, NULL),
	    0);
	assert_int_equal(count_requests(&d.w, "register", 0), before);
	free(begun);
	free(marker);
	free(other);
	finish(&d);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_pairing_keeps_the_code),
		cmocka_unit_test(no_inode_is_left_for_the_identity),
		cmocka_unit_test(second_pairing_keeps_the_identity),
		cmocka_unit_test(rotation_keeps_the_old_identity),
		cmocka_unit_test(nothing_runs_without_its_marker),
		cmocka_unit_test(writable_start_needs_its_record),
		cmocka_unit_test(writable_ancestor),
		cmocka_unit_test(identity_of_a_wrong_kind),
		cmocka_unit_test(identity_of_another_owner),
		cmocka_unit_test(identity_that_is_a_mount_point),
		cmocka_unit_test(link_that_is_swapped),
		cmocka_unit_test(marker_of_a_wrong_kind),
	};

	log_init("test", 0);
	private_mounts(cannot_mount, sizeof(cannot_mount));
	return cmocka_run_group_tests_name("storage", tests, NULL, NULL);
}

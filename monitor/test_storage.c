#include "config.h"

#include <sys/types.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "buf.h"
#include "identity.h"
#include "lock.h"
#include "marker.h"
#include "mountinfo.h"
#include "storage.h"

/*
 * Trust rules and what is built on them, in a directory of its own. Rows that
 * need an owner other than this account run as root only.
 */

#define FOREIGN 4242

static char *base; /* canonical */

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static int
set_up(void **state)
{
	char dir[] = "/tmp/librechat-code-test.XXXXXX";

	(void)state;
	umask(022);
	if (mkdtemp(dir) == NULL || (base = realpath(dir, NULL)) == NULL)
		return -1;
	return chmod(base, 0755);
}

static int
tear_down(void **state)
{
	(void)state;
	(void)nftw(base, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	free(base);
	base = NULL;
	return 0;
}

static char *
at(const char *name)
{
	return xasprintf("%s/%s", base, name);
}

static void
dir(const char *name, mode_t mode, int owner)
{
	char *p = at(name);

	assert_int_equal(mkdir(p, 0700), 0);
	if (owner != -1)
		assert_int_equal(chown(p, (uid_t)owner, (gid_t)owner), 0);
	assert_int_equal(chmod(p, mode), 0);
	free(p);
}

static void
file(const char *name, const char *text, mode_t mode)
{
	char *p = at(name);
	int fd;

	fd = open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd != -1);
	assert_int_equal(storage_write(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	free(p);
}

static void
link_to(const char *name, const char *target, int owner)
{
	char *p = at(name);

	assert_int_equal(symlink(target, p), 0);
	if (owner != -1)
		assert_int_equal(lchown(p, (uid_t)owner, (gid_t)owner), 0);
	free(p);
}

/* The walk of base/name; *error is what it says, "" if nothing. */
static enum storage_result
walk(const char *name, int missing_ok, char *error, size_t size)
{
	struct walk w;
	char *p = at(name), *why = NULL;
	enum storage_result r;

	r = storage_walk(p, missing_ok, &w, &why);
	xsnprintf(error, size, "%s", why == NULL ? "" : why);
	if (r == STORAGE_OK)
		walk_free(&w);
	free(why);
	free(p);
	return r;
}

struct row {
	const char *path;
	int missing_ok;
	enum storage_result result;
	const char *text; /* part of the error */
};

static void
check_rows(const struct row *rows, size_t n)
{
	char error[512];
	enum storage_result r;
	size_t i;

	for (i = 0; i < n; i++) {
		r = walk(
		    rows[i].path, rows[i].missing_ok, error, sizeof(error));
		if (r != rows[i].result)
			fail_msg("%s: %d: %s", rows[i].path, (int)r, error);
		if (rows[i].text != NULL && strstr(error, rows[i].text) == NULL)
			fail_msg("%s: %s", rows[i].path, error);
	}
}

/* Table 14.7 of cli-and-storage. */
static void
test_ancestors(void **state)
{
	static const struct row rows[] = {
		{ "own/id.json", 0, STORAGE_OK, NULL },
		{ "own//./id.json", 0, STORAGE_OK, NULL },
		{ "own/../own/id.json", 0, STORAGE_OK, NULL },
		{ "sticky/priv/id.json", 0, STORAGE_OK, NULL },
		{ "gw/priv/id.json", 0, STORAGE_ERROR, "gw is writable" },
		{ "gw/new", 1, STORAGE_ERROR, "mode 770" },
		{ "rel/id.json", 0, STORAGE_OK, NULL },
		{ "togw/id.json", 0, STORAGE_ERROR, "gw is writable" },
		{ "dots/id.json", 0, STORAGE_OK, NULL },
		{ "loop1/x", 0, STORAGE_ERROR, "Too many storage symlinks" },
		{ "c40/id.json", 0, STORAGE_OK, NULL },
		{ "c41/id.json", 0, STORAGE_ERROR, "Too many" },
		{ "dangling/x", 0, STORAGE_MISSING, NULL },
		{ "dangling/x", 1, STORAGE_OK, NULL },
		{ "own/new/deeper", 0, STORAGE_MISSING, NULL },
		{ "own/new/deeper", 1, STORAGE_OK, NULL },
		{ "own/id.json/x", 1, STORAGE_ERROR, "must be a directory" },
		{ "own/id.json/..", 1, STORAGE_ERROR, "must be a directory" },
		{ "own/id.json/.", 0, STORAGE_OK, NULL },
		{ "own/sub", 1, STORAGE_ERROR, "mode 777" },
		{ "sg/x", 1, STORAGE_ERROR, "mode 2775" },
	};
	char name[16], target[16];
	int i;

	(void)state;
	dir("own", 0700, -1);
	file("own/id.json", "", 0600);
	dir("own/sub", 0777, -1);
	dir("gw", 0770, -1);
	dir("gw/priv", 0700, -1);
	file("gw/priv/id.json", "", 0600);
	dir("sticky", 01777, -1);
	dir("sticky/priv", 0700, -1);
	file("sticky/priv/id.json", "", 0600);
	dir("sg", 02775, -1);
	link_to("rel", "own", -1);
	link_to("togw", "gw/priv", -1);
	link_to("dots", "own/sub/../../own/../own", -1);
	assert_int_equal(chmod(base, 0755), 0);
	link_to("loop1", "loop2", -1);
	link_to("loop2", "loop1", -1);
	link_to("dangling", "nowhere", -1);
	link_to("c1", "own", -1);
	for (i = 2; i <= 41; i++) {
		xsnprintf(name, sizeof(name), "c%d", i);
		xsnprintf(target, sizeof(target), "c%d", i - 1);
		link_to(name, target, -1);
	}
	/* The middle of that path is judged too, so take the mode back. */
	{
		char *p = at("own/sub");

		assert_int_equal(chmod(p, 0755), 0);
		check_rows(rows, 9);
		assert_int_equal(chmod(p, 0777), 0);
		free(p);
	}
	check_rows(rows + 9, sizeof(rows) / sizeof(rows[0]) - 9);
}

static void
test_foreign_owners(void **state)
{
	static const struct row rows[] = {
		{ "other/priv/id.json", 0, STORAGE_ERROR, "other is owned by" },
		{ "flink/id.json", 0, STORAGE_ERROR, "flink is owned by" },
		{ "sticky/theirs", 0, STORAGE_ERROR, "uid 4242" },
	};

	(void)state;
	if (geteuid() != 0) {
		print_message("only root can make files of other owners\n");
		skip();
	}
	dir("own", 0700, -1);
	file("own/id.json", "", 0600);
	dir("other", 0755, FOREIGN);
	dir("sticky", 01777, -1);
	link_to("flink", "own", FOREIGN);
	link_to("sticky/theirs", "own", FOREIGN);
	check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

#define B            "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
#define ENTRY(point) "41 29 254:0 /x " point " rw - ext4 /dev/vda rw\n"

/* Table 5.3. */
static void
test_mountinfo(void **state)
{
	static const char id[] = "/srv/id/my-vm.json";
	static const struct {
		const char *table, *path;
		enum mount_result result;
	} rows[] = {
		{ B, id, MOUNT_NONE },
		{ B ENTRY("/srv/id/my-vm.json"), id, MOUNT_POINT },
		{ B "41 29 254:0 /x /srv/id/my-vm.json rw shared:2 master:1 - "
		    "ext4 /dev/vda rw\n",
		    id, MOUNT_POINT },
		{ B ENTRY("/srv/id"), id, MOUNT_NONE },
		{ B ENTRY("/srv/id/my-vm.json//deleted"), id, MOUNT_NONE },
		{ B ENTRY("/srv/my\\040id/a.json"), "/srv/my id/a.json",
		    MOUNT_POINT },
		{ B ENTRY("/srv/a\\134040b"), "/srv/a\\040b", MOUNT_POINT },
		{ B ENTRY("/srv/a\\011b\\012c"), "/srv/a\tb\nc", MOUNT_POINT },
		{ B ENTRY("/srv/\\043"), id, MOUNT_MALFORMED },
		{ B ENTRY("/srv/\\04"), id, MOUNT_MALFORMED },
		{ B "41 29 254:0 /\\043 /srv rw - ext4 /dev/vda rw\n", id,
		    MOUNT_NONE },
		{ "", id, MOUNT_MALFORMED },
		{ "\n", id, MOUNT_MALFORMED },
		{ B "\n" B, id, MOUNT_MALFORMED },
		{ "29 1 254:0 / / rw,relatime ext4 /dev/vda rw\n", id,
		    MOUNT_MALFORMED },
		{ "29 1 254:0 / / rw - ext4 /dev/vda\n", id, MOUNT_MALFORMED },
		{ "29 1 254:0 / / rw - 9p C: rw,x=C:\\Program Files\n", id,
		    MOUNT_NONE },
		{ "29 1 254:0 / / rw - - ext4 /dev/vda rw\n", id,
		    MOUNT_MALFORMED },
		{ "29 1 254:0 / / rw - tmpfs  rw\n", id, MOUNT_NONE },
		{ "a1 1 254:0 / / rw - ext4 /dev/vda rw\n", id,
		    MOUNT_MALFORMED },
		{ "29 1 254-0 / / rw - ext4 /dev/vda rw\n", id,
		    MOUNT_MALFORMED },
		{ "29 1 254:0 / srv rw - ext4 /dev/vda rw\n", id,
		    MOUNT_MALFORMED },
		{ B ENTRY("/srv/id/my-vm.json") "broken\n", id,
		    MOUNT_MALFORMED },
		{ "29 1 254:0 / / rw - ext4 /dev/vda rw\r\n"
		  "29 1 254:0 / /srv rw - ext4 /dev/vda rw\r\n",
		    id, MOUNT_NONE },
		{ "300 29 0:4 net:[4026532275] /run/netns/x rw shared:9 - nsfs "
		  "nsfs rw\n",
		    id, MOUNT_NONE },
		{ "29 1 254:0 / / rw - ext4 /dev/vda rw", id, MOUNT_NONE },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (mountinfo_find(rows[i].table, strlen(rows[i].table),
			rows[i].path) != rows[i].result)
			fail_msg("row %zu: %s", i, rows[i].table);
}

static void
test_location(void **state)
{
	static const char table[] =
	    "29 1 254:0 / / rw - ext4 /dev/vda rw\n"
	    "40 29 254:0 /srv/app/sub /mnt/s\\040x rw - ext4 /dev/vda rw\n"
	    "41 29 0:40 / /mnt/t rw - tmpfs tmpfs rw\n";
	static const struct {
		unsigned long long id;
		const char *path, *location;
	} rows[] = {
		{ 29, "/srv/app", "254:0/srv/app" },
		{ 29, "/", "254:0/" },
		{ 40, "/mnt/s x", "254:0/srv/app/sub" },
		{ 40, "/mnt/s x/y", "254:0/srv/app/sub/y" },
		{ 41, "/mnt/t", "0:40/" },
		{ 41, "/mnt/t/u", "0:40/u" },
		{ 41, "/mnt/tt", NULL },
		{ 2, "/srv", NULL },
	};
	struct buf b;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		buf_init(&b);
		if (rows[i].location == NULL)
			assert_int_equal(
			    mountinfo_location(table, sizeof(table) - 1,
				rows[i].id, rows[i].path, &b),
			    -1);
		else {
			assert_int_equal(
			    mountinfo_location(table, sizeof(table) - 1,
				rows[i].id, rows[i].path, &b),
			    0);
			assert_string_equal(buf_cstr(&b), rows[i].location);
		}
		buf_free(&b);
	}
}

static const char example[] =
    "{\n"
    "  \"protocolVersion\": 1,\n"
    "  \"workerId\": \"my-vm\",\n"
    "  \"credential\": \"wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4\",\n"
    "  \"expiresAt\": \"2026-03-04T05:21:07.000Z\",\n"
    "  \"codeApiUrl\": \"https://code.example.com/v1\",\n"
    "  \"publicKey\": \"-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEAA6EHv/PO"
    "EL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\\n-----END PUBLIC KEY-----\\n\",\n"
    "  \"privateKey\": \"-----BEGIN PRIVATE KEY-----\\nMC4CAQAwBQYDK2VwBCIEIA"
    "ABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\\n-----END PRIVATE KEY-----"
    "\\n\"\n"
    "}\n";

/* The example with one piece replaced; allocated. */
static char *
changed(const char *old, const char *new)
{
	const char *p = strstr(example, old);

	assert_non_null(p);
	return xasprintf(
	    "%.*s%s%s", (int)(p - example), example, new, p + strlen(old));
}

static void
test_identity_format(void **state)
{
	struct identity id;
	struct secret text;
	unsigned char seed[32], h[32];
	struct key k;
	char hex[65], *error = NULL;
	unsigned char i;

	(void)state;
	for (i = 0; i < 32; i++)
		seed[i] = i;
	key_from_seed(&k, seed);
	identity_format(&text, "my-vm", "wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4",
	    "2026-03-04T05:21:07.000Z", "https://code.example.com/v1", &k);
	assert_string_equal(text.data, example);
	crypto_hash_sha256(h, (unsigned char *)text.data, text.len);
	sodium_bin2hex(hex, sizeof(hex), h, sizeof(h));
	assert_string_equal(hex,
	    "360b0cb018aef4bd238e0e00b2d644fac4a1c96e949f3cdcbab47bd080977c88");
	assert_int_equal(
	    identity_parse(&id, "x", text.data, text.len, &error), 0);
	assert_string_equal(id.worker, "my-vm");
	assert_string_equal(
	    id.credential.data, "wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4");
	assert_int_equal(id.expires, 1772601667000);
	identity_free(&id);
	secret_free(&text);
	key_free(&k);
}

static void
test_identity_refused(void **state)
{
	static const char *const rows[][2] = {
		{ "\"protocolVersion\": 1", "\"protocolVersion\": 2" },
		{ "\"protocolVersion\": 1", "\"protocolVersion\": \"1\"" },
		{ "\"my-vm\"", "7" },
		{ "\"my-vm\",", "\"my-vm\",\n  \"workerId\": \"x\"," },
		{ "2026-03-04T05:21:07.000Z", "soon" },
		{ "\"wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4\"", "null" },
		{ "A6EHv/PO", "A6EHv/PP" },
		{ "ABAgMEBQ", "ABAgMEBR" },
		{ "MC4CAQAw", "MC4CAQAx" },
		{ "BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE" },
		{ "\"privateKey\"", "\"privat\\u0065Key\"" },
		{ "}\n", "" },
		{ "}\n", "}}\n" },
		{ "{\n", "[\n" },
		{ "{\n", "\xef\xbb\xbf{\n" },
		{ "my-vm", "my\xff" },
	};
	struct identity id;
	char *text, *error;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		text = changed(rows[i][0], rows[i][1]);
		error = NULL;
		if (identity_parse(&id, "/x", text, strlen(text), &error) != -1)
			fail_msg("row %zu was accepted", i);
		assert_non_null(
		    strstr(error, "Invalid bridge identity file: /x"));
		assert_null(strstr(error, "ABAgMEB"));
		free(error);
		free(text);
	}
	error = NULL;
	assert_int_equal(identity_parse(&id, "/x", "", 0, &error), -1);
	free(error);
}

static void
test_identity_rotation_keeps_the_rest(void **state)
{
	struct secret old, new;
	char *text, *want, *error = NULL;

	(void)state;
	text = changed("\"codeApiUrl\"",
	    "\"extra\" : { \"credential\": [ \"}\\\"\", 1e3 ] },\n  "
	    "\"codeApiUrl\"");
	secret_set(&old, text, strlen(text));
	assert_int_equal(identity_splice(&old, "new\"credential",
			     "2027-01-01T00:00:00.000Z", &new, &error),
	    0);
	free(text);
	text = changed("\"wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4\",\n  "
		       "\"expiresAt\": \"2026-03-04T05:21:07.000Z\"",
	    "\"new\\\"credential\",\n  \"expiresAt\": "
	    "\"2027-01-01T00:00:00.000Z\"");
	want = xasprintf("%.*s\"extra\" : { \"credential\": [ \"}\\\"\", 1e3 ] "
			 "},\n  %s",
	    (int)(strstr(text, "\"codeApiUrl\"") - text), text,
	    strstr(text, "\"codeApiUrl\""));
	assert_string_equal(new.data, want);
	free(text);
	free(want);
	secret_free(&old);
	secret_free(&new);
}

static void
load_expect(const char *name, const char *text)
{
	struct identity id;
	char *p = at(name), *error = NULL;
	enum storage_result r = identity_load(p, &id, &error);

	if (text == NULL) {
		if (r != STORAGE_OK)
			fail_msg("%s", error);
		identity_free(&id);
	} else if (r == STORAGE_OK || strstr(error, text) == NULL)
		fail_msg("%s: %s", name, error == NULL ? "loaded" : error);
	free(error);
	free(p);
}

static void
test_identity_load(void **state)
{
	char *p, *big;

	(void)state;
	dir("own", 0700, -1);
	file("own/ok", example, 0600);
	load_expect("own/ok", NULL);
	file("own/ro", example, 0400);
	load_expect("own/ro", NULL);
	file("own/x", example, 0700);
	load_expect("own/x", NULL);
	link_to("own/link", "ok", -1);
	load_expect("own/link", NULL);
	file("own/g", example, 0640);
	load_expect("own/g", "accessible beyond its owner (mode 640)");
	file("own/o", example, 0604);
	load_expect("own/o", "(mode 604)");
	file("own/w", example, 0644);
	load_expect("own/w", "(mode 644)");
	file("own/empty", "", 0600);
	load_expect("own/empty", "it is empty");
	p = at("own/fifo");
	assert_int_equal(mkfifo(p, 0600), 0);
	free(p);
	load_expect("own/fifo", "not a regular file");
	load_expect("own", "is a directory");
	load_expect("own/none", "No such file");
	big = xmalloc(IDENTITY_MAX + 2);
	memset(big, ' ', IDENTITY_MAX + 1);
	big[IDENTITY_MAX + 1] = '\0';
	file("own/big", big, 0600);
	free(big);
	load_expect("own/big", "longer than 64 KiB");
	p = at("own");
	assert_int_equal(chmod(p, 0777), 0);
	free(p);
	load_expect("own/ok", "writable by other accounts (mode 777)");
}

static int
entries(const char *name)
{
	char *p = at(name), *cmd;
	FILE *f;
	int n = 0, c;

	cmd = xasprintf("ls -A '%s' | wc -l", p);
	f = popen(cmd, "r");
	assert_non_null(f);
	while ((c = fgetc(f)) != EOF)
		if (c >= '0' && c <= '9')
			n = n * 10 + c - '0';
	pclose(f);
	free(cmd);
	free(p);
	return n;
}

static void
test_reserve_and_save(void **state)
{
	struct reservation rv;
	struct secret text;
	struct stat st;
	char *p = at("a/b/id.json"), *error = NULL;
	int mi = mountinfo_open();

	(void)state;
	assert_int_equal(identity_reserve(p, mi, &rv, &error), 0);
	assert_int_equal(stat(p, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	identity_release(&rv);
	assert_int_equal(stat(p, &st), -1);
	assert_int_equal(entries("a/b"), 0);

	assert_int_equal(identity_reserve(p, mi, &rv, &error), 0);
	secret_set(&text, example, strlen(example));
	assert_int_equal(identity_save(p, &text, mi, &error), 0);
	/* What was published meanwhile is not taken away. */
	identity_release(&rv);
	load_expect("a/b/id.json", NULL);
	assert_int_equal(entries("a/b"), 1);

	/* Over an existing identity: untouched until the save. */
	assert_int_equal(identity_reserve(p, mi, &rv, &error), 0);
	identity_release(&rv);
	load_expect("a/b/id.json", NULL);
	assert_int_equal(entries("a/b"), 1);
	secret_free(&text);
	free(p);
	if (mi != -1)
		close(mi);
}

static void
reserve_fails(const char *name, int mi, const char *text)
{
	struct reservation rv;
	char *p = at(name), *error = NULL;

	if (identity_reserve(p, mi, &rv, &error) != -1)
		fail_msg("%s was reserved", name);
	if (strstr(error, text) == NULL)
		fail_msg("%s: %s", name, error);
	free(error);
	free(p);
}

static void
test_reserve_refused(void **state)
{
	int mi = mountinfo_open();
	char *p;

	(void)state;
	dir("own", 0700, -1);
	dir("own/d", 0700, -1);
	dir("gw", 0775, -1);
	reserve_fails("own/d", mi, "is a directory. Point --identity at");
	reserve_fails("gw/id.json", mi, "mode 775");
	file("own/w", example, 0644);
	reserve_fails("own/w", mi, "accessible beyond its owner");
	link_to("own/dangling", "nowhere", -1);
	reserve_fails("own/dangling", mi, "No such file");
	assert_int_equal(entries("own"), 3);
#ifdef __linux__
	reserve_fails("own/new", -1, "Cannot verify identity mount status");
#endif
	if (geteuid() != 0) {
		dir("ro", 0700, -1);
		file("ro/id.json", example, 0600);
		p = at("ro");
		assert_int_equal(chmod(p, 0500), 0);
		reserve_fails("ro/id.json", mi, "Cannot create a temporary");
		load_expect("ro/id.json", NULL);
		assert_int_equal(chmod(p, 0700), 0);
		free(p);
	}
	if (mi != -1)
		close(mi);
}

static void
test_credentials(void **state)
{
	(void)state;
	assert_true(credential_valid("wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4"));
	assert_true(credential_valid("01234567890123456789012345678901"));
	assert_false(credential_valid("0123456789012345678901234567890"));
	assert_false(credential_valid("0123456789 12345678901234567890123"));
	assert_false(credential_valid("0123456789\n12345678901234567890123"));
	assert_false(credential_valid("0123456789\xc3\xa9"
				      "12345678901234567890123"));
}

static void
test_marker_life(void **state)
{
	struct marker m, other;
	struct marker_info info;
	char *p = at("s/q/m.json"), *error = NULL;

	(void)state;
	assert_int_equal(marker_open(&m, p, 0, &error), STORAGE_MISSING);
	free(error);
	error = NULL;
	assert_int_equal(marker_open(&m, p, 1, &error), STORAGE_OK);
	assert_int_equal(marker_load(&m, &info, &error), STORAGE_MISSING);
	assert_int_equal(
	    marker_arm(&m, "my-vm", "primary", "AAECAwQFBgcICQoLDA0ODxAR",
		"Workspace mutation did not settle", &error),
	    0);
	assert_int_equal(marker_load(&m, &info, &error), STORAGE_OK);
	assert_string_equal(info.workspace, "primary");
	assert_string_equal(info.owner, "AAECAwQFBgcICQoLDA0ODxAR");
	assert_int_equal(strlen(info.since), 24);
	marker_info_free(&info);

	/* Another process can neither replace nor clear it. */
	assert_int_equal(marker_open(&other, p, 1, &error), STORAGE_OK);
	assert_int_equal(
	    marker_arm(&other, "my-vm", "primary", "other", "r", &error), -1);
	assert_non_null(strstr(error, "File exists"));
	free(error);
	error = NULL;
	assert_int_equal(marker_clear(&other, &error), -1);
	assert_non_null(strstr(error, "owned by another worker incarnation"));
	free(error);
	error = NULL;

	assert_int_equal(marker_clear(&m, &error), 0);
	assert_int_equal(entries("s/q"), 0);
	assert_int_equal(marker_remove(&m, &error), 0);
	file("s/q/m.json", "", 0666);
	assert_int_equal(marker_load(&m, &info, &error), STORAGE_ERROR);
	free(error);
	error = NULL;
	assert_int_equal(marker_remove(&m, &error), 1);
	marker_close(&m);
	marker_close(&other);
	free(p);
}

static void
test_marker_content(void **state)
{
	static const struct {
		const char *text;
		enum storage_result result;
	} rows[] = {
		{ "{\"version\":1,\"workerId\":\"w\",\"workspaceId\":\"p\","
		  "\"quarantinedAt\":\"2026-03-04T05:06:07.089Z\","
		  "\"reason\":\"r\"}",
		    STORAGE_OK },
		{ "{\"version\":1,\"workerId\":\"w\",\"workspaceId\":\"p\","
		  "\"ownerId\":null,\"x\":[],"
		  "\"quarantinedAt\":\"2026-03-04T05:06:07.089Z\","
		  "\"reason\":\"r\"}",
		    STORAGE_OK },
		{ "{\"version\":2,\"workerId\":\"w\",\"workspaceId\":\"p\","
		  "\"quarantinedAt\":\"2026-03-04T05:06:07.089Z\","
		  "\"reason\":\"r\"}",
		    STORAGE_ERROR },
		{ "{\"version\":1,\"workerId\":\"w\",\"workspaceId\":\"p\","
		  "\"ownerId\":7,"
		  "\"quarantinedAt\":\"2026-03-04T05:06:07.089Z\","
		  "\"reason\":\"r\"}",
		    STORAGE_ERROR },
		{ "{\"version\":1,\"workerId\":\"w\",\"workspaceId\":\"p\","
		  "\"quarantinedAt\":\"2026-03-04T05:06:07.089Z\","
		  "\"reason\":\"\"}",
		    STORAGE_ERROR },
		{ "{\"version\":1,\"workerId\":\"w\",\"workspaceId\":\"p\","
		  "\"quarantinedAt\":\"x\",\"reason\":\"r\"}",
		    STORAGE_ERROR },
		{ "", STORAGE_ERROR },
		{ "garbage", STORAGE_ERROR },
	};
	struct marker m;
	struct marker_info info;
	char *p = at("s/m.json"), *error = NULL;
	size_t i;

	(void)state;
	assert_int_equal(marker_open(&m, p, 1, &error), STORAGE_OK);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		file("s/m.json", rows[i].text, 0600);
		if (marker_load(&m, &info, &error) != rows[i].result)
			fail_msg("row %zu", i);
		if (rows[i].result == STORAGE_OK)
			marker_info_free(&info);
		free(error);
		error = NULL;
	}
	marker_close(&m);
	free(p);
}

static void
test_marker_needs_its_directory(void **state)
{
	struct marker m;
	char *p = at("s/m.json"), *d = at("s"), *e = at("t"), *error = NULL;

	(void)state;
	assert_int_equal(marker_open(&m, p, 1, &error), STORAGE_OK);
	assert_int_equal(chmod(d, 0777), 0);
	assert_int_equal(marker_arm(&m, "w", "p", "o", "r", &error), -1);
	assert_non_null(strstr(error, "mode 777"));
	free(error);
	error = NULL;
	assert_int_equal(chmod(d, 0700), 0);
	assert_int_equal(rename(d, e), 0);
	assert_int_equal(mkdir(d, 0700), 0);
	assert_int_equal(marker_arm(&m, "w", "p", "o", "r", &error), -1);
	assert_non_null(strstr(error, "was replaced"));
	free(error);
	assert_int_equal(entries("s"), 0);
	assert_int_equal(entries("t"), 0);
	marker_close(&m);
	free(p);
	free(d);
	free(e);
}

static void
test_lock(void **state)
{
	char *d = at("locks/x"), *error = NULL;
	int a, b;

	(void)state;
	assert_int_equal(lock_worker(d, &a, &error), LOCK_TAKEN);
	assert_int_equal(lock_worker(d, &b, &error), LOCK_BUSY);
	free(error);
	error = NULL;
	close(a);
	assert_int_equal(lock_worker(d, &b, &error), LOCK_TAKEN);
	close(b);
	free(d);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_ancestors),
		T(test_foreign_owners),
		cmocka_unit_test(test_mountinfo),
		cmocka_unit_test(test_location),
		cmocka_unit_test(test_identity_format),
		cmocka_unit_test(test_identity_refused),
		cmocka_unit_test(test_identity_rotation_keeps_the_rest),
		T(test_identity_load),
		T(test_reserve_and_save),
		T(test_reserve_refused),
		cmocka_unit_test(test_credentials),
		T(test_marker_life),
		T(test_marker_content),
		T(test_marker_needs_its_directory),
		T(test_lock),
	};

	if (sodium_init() == -1)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "buf.h"
#include "names.h"
#include "sign.h"
#include "url.h"

/* Vectors of cli-and-storage 14, protocol 16 and code-api-server 4.6. */

static void
test_identity_names(void **state)
{
	static const char *const rows[][2] = {
		{ "my-vm", "my-vm.json" },
		{ "a.b-c_d", "a.b-c_d.json" },
		{ "build-box:7", "build-box_7-671a09529297c35d.json" },
		{ "build-box_7", "build-box_7.json" },
		{ "xxxxx:", "xxxxx_-ddb0c3a18c76449b.json" },
		{ "vm/example worker",
		    "vm_example_worker-9301c5fe946cc241.json" },
		{ "\xc3\xa9"
		  "1",
		    "_1-f382f97c038d14a6.json" },
	};
	char *name;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		name = identity_name(rows[i][0]);
		assert_string_equal(name, rows[i][1]);
		free(name);
	}
}

static void
test_urls(void **state)
{
	static const char v1[] =
	    "id-0eb6f8f80e586937c2ad406c2889786aab1cad09b575cfec729630ed01011"
	    "db6";
	static const char top[] =
	    "id-34530e4caccc61dd498af8d2a0a054c735c7320980f46d283254b3dc9368f"
	    "9db";
	static const char *const rows[][3] = {
		{ "https://code.example.com/v1", v1, "/v1" },
		{ "https://code.example.com/v1///", v1, "/v1" },
		{ "https://CODE.Example.com:443/v1//", v1, "/v1" },
		{ "https://code.example.com", top, "" },
		{ "https://code.example.com/", top, "" },
		{ "https://code.example.com:8443/v1",
		    "id-01a5197a4b6a8722d498d6f4e822d021d5038b8445b6bc84649799"
		    "cfe8be8165",
		    "/v1" },
		{ "https://code.example.com/%7eteam/v1",
		    "id-1d7503d9a4bf5689110147de10fb26df817cf7c0e7d0b9f4e14e777"
		    "f84246905",
		    "/%7eteam/v1" },
		{ "http://127.0.0.1:3112/v1",
		    "id-7aff74d5837f352e34d6b09a044945b9833e1701e511e7b38ddb506"
		    "419db5ccc",
		    "/v1" },
		{ "http://localhost:80/v1",
		    "id-11792a882efd75f3092d7caa7bd73578ffd4f3b82e34bffd792d031"
		    "168afe951",
		    "/v1" },
		{ "http://[::1]:3112/v1",
		    "id-3ad9875db86ee195b758a1d7fbdb74cd52e55892c3c66760cabe568"
		    "15c0c44d9",
		    "/v1" },
	};
	struct base_url u;
	char part[ID_PART_SIZE], *error = NULL;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(base_url_parse(rows[i][0], &u, &error), 0);
		id_part(part, u.canonical, strlen(u.canonical));
		assert_string_equal(part, rows[i][1]);
		assert_string_equal(u.path, rows[i][2]);
		base_url_free(&u);
	}
}

static void
test_urls_refused(void **state)
{
	static const char *const rows[] = { "", "code.example.com/v1",
		"localhost:3112/v1", "https:code.example.com/v1",
		"ftp://code.example.com/", "https://", "https:///v1",
		"https://code.example.com/v1#top",
		"https://code.example.com/v1?tenant=a",
		"https://code.example.com/v1?",
		"https://user:pw@code.example.com/v1",
		"https://code.example.com/v 1", "https://b\xc3\xbc.example/v1",
		"http://0x7f.1/v1", "http://127.1/", "http://01.2.3.4/",
		"https://code.example.com/a/../v1",
		"https://code.example.com/a/%2E%2e/v1",
		"https://code.example.com/./v1",
		"https://code.example.com/a\\b", "https://x:0/",
		"https://x:65536/", "https://x:/", "https://x:1x/",
		"http://[::1/", "http://[0::1]/", "http://[::ffff:1.2.3.4]/",
		"https://a..b/", "https://.a/", "https://x/%zz",
		"https://x/\x7f", "https://x\n/" };
	struct base_url u;
	char *error;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		error = NULL;
		if (base_url_parse(rows[i], &u, &error) != -1)
			fail_msg("%s was accepted", rows[i]);
		assert_non_null(error);
		free(error);
	}
}

static void
test_parts(void **state)
{
	static const char *const rows[][2] = {
		{ "my-vm",
		    "d6ee5c042171218f2f557880afc9c8b87b59e5a2c361c8b39156c4a33"
		    "6e161eb" },
		{ "Primary",
		    "efe10c80ec8a9f38624cbb47103010a8cf32488a503e4b4bfe4f92307"
		    "a9cefa7" },
		{ "/srv/projects/app",
		    "330d8425e07f3b010df05e3f6b56acdf43a097ebbd2c8ade493ade2c3"
		    "fa72eab" },
		{ "/home/ann/app",
		    "c6e422ae6b09f558f24611bf74f929338a29dc2b574960ea80fcf4d1b"
		    "bdd6b57" },
	};
	char part[ID_PART_SIZE], *dir, *name;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		id_part(part, rows[i][0], strlen(rows[i][0]));
		assert_string_equal(part + 3, rows[i][1]);
	}
	dir = state_dir("/home/ann", "https://code.example.com/v1", "my-vm");
	assert_string_equal(dir,
	    "/home/ann/.local/state/librechat/code/quarantines/"
	    "id-0eb6f8f80e586937c2ad406c2889786aab1cad09b575cfec729630ed01011db"
	    "6/id-d6ee5c042171218f2f557880afc9c8b87b59e5a2c361c8b39156c4a336e16"
	    "1eb");
	name = marker_name("/srv/projects/app");
	assert_string_equal(name,
	    "id-330d8425e07f3b010df05e3f6b56acdf43a097ebbd2c8ade493ade2c3fa72ea"
	    "b.json");
	free(dir);
	free(name);
}

static const char public_pem[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
    "-----END PUBLIC KEY-----\n";
static const char private_pem[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
    "-----END PRIVATE KEY-----\n";

static void
test_default_workspace(void **state)
{
	static const char *const rows[][3] = {
		{ "https://code.example.com/v1/", public_pem,
		    "id-346db56f124993ff6df35a56759e5ec00bb8dfb9a0c667b1a6347e7"
		    "12b7f3fe7" },
		{ "https://CODE.example.com/v1", public_pem,
		    "id-cc35bca7d6fcb78b9ecb95d568788a1556049b7200a38e509fd2d39"
		    "b3b5535f6" },
		{ "https://other.example.com/v1", public_pem,
		    "id-838363e6ce7720a51e6786d96a8282505daf1e077b9925ab85b15cf"
		    "d42c660db" },
		{ "https://code.example.com/v1", "example-static-token-0001",
		    "id-7a17ce0a35bb59dd10cdd63f6835c2848c3d7cfe1d7d83305b8b6a6"
		    "12cd08368" },
	};
	char *path, *want;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		path = default_workspace_path(
		    "/home/ann", rows[i][0], rows[i][1], "my-vm", "primary");
		want = xasprintf(
		    "/home/ann/.local/share/librechat/code/workspaces/%s/"
		    "id-d6ee5c042171218f2f557880afc9c8b87b59e5a2c361c8b39156c4a"
		    "336e161eb/id-986a1b7135f4986150aa5fa0028feeaa66cdaf3ed6a00"
		    "a355dd86e042f7fb494",
		    rows[i][2]);
		assert_string_equal(path, want);
		free(path);
		free(want);
	}
}

static void
test_policy_digest(void **state)
{
	char registry[] = "registry.example.org";
	char files[] = "static.example.org";
	char *domains[] = { registry, files };
	char d[POLICY_DIGEST_SIZE];

	(void)state;
	policy_digest(d, "default-deny", 0, NULL, 0, GITHUB_NONE);
	assert_string_equal(d,
	    "003c8a3e2ef28bf00cc594b4f5598eb94e891dbb36ad13db8af13ce608994582");
	policy_digest(d, "", 0, NULL, 0, GITHUB_NONE);
	assert_string_equal(d,
	    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	policy_digest(d, "prod-2026-01", 0, NULL, 0, GITHUB_NONE);
	assert_string_equal(d,
	    "5dc41ec771d0fd9117a4879d2f8067d81cce1d5c899af9dade8e2d73c1b83718");
	policy_digest(d, "default-deny", 1, NULL, 0, GITHUB_NONE);
	assert_string_equal(d,
	    "00fb1577cfbda5a3385c76f547d13e89ecb87eba55768f2725208c4a0f06aaae");
	policy_digest(d, "default-deny", 1, domains, 2, GITHUB_NONE);
	assert_string_equal(d,
	    "65f875b59aba182920649b080a0413787a2b255ca77f82156b68cd647f3bc517");
}

static void
test_trimmed(void **state)
{
	char *t;

	(void)state;
	t = trimmed(" \t\xc2\xa0my vm\xe2\x80\xa8\n");
	assert_string_equal(t, "my vm");
	free(t);
	t = trimmed(" \xef\xbb\xbf ");
	assert_string_equal(t, "");
	free(t);
	t = trimmed("\xff x");
	assert_string_equal(t, "\xff x");
	free(t);
}

struct vector {
	const char *path, *credential, *nonce, *sha256, *signature;
	int64_t time;
	unsigned int first; /* byte of the seed: they count upwards */
};

static void
check_vector(const struct vector *v)
{
	struct sign_request q;
	struct sign_answer a;
	struct key k;
	unsigned char seed[32], nonce[NONCE_BYTES];
	unsigned int i;

	for (i = 0; i < 32; i++)
		seed[i] = (unsigned char)(v->first + i);
	key_from_seed(&k, seed);
	assert_int_equal(
	    sodium_base642bin(nonce, sizeof(nonce), v->nonce, strlen(v->nonce),
		NULL, NULL, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
	    0);
	q.path = xstrdup(v->path);
	assert_int_equal(sodium_hex2bin(q.sha256, sizeof(q.sha256), v->sha256,
			     strlen(v->sha256), NULL, NULL, NULL),
	    0);
	sign_request(&k, v->credential, &q, v->time, nonce, &a);
	assert_string_equal(a.nonce, v->nonce);
	assert_string_equal(a.signature, v->signature);
	sign_answer_free(&a);
	sign_request_free(&q);
	key_free(&k);
}

static void
test_signatures(void **state)
{
	static const char c1[] = "wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4";
	static const char c2[] = "CxIZICcuNTxDSlFYX2ZtdHuCiZCXnqWss7rByM_W3eQ";
	static const struct vector rows[] = {
		{ "/v1/bridge/workers/build-box-7/lease", c1,
		    "oKGio6SlpqeoqaqrrK2ur7Cx",
		    "4c4a45314ec28319f5f533fd1f8dcaf44a10f3e8e5cdf2350b77a22828"
		    "5d1208",
		    "uTGNQCa1rkr1-J44QI9N6Fu3IQzblljQ2kTtBJ8t4SN_cgAIVJgDE90AV_"
		    "laecU0ShcIp2gvGSjgwhrRIg61Dg",
		    1772600767089, 0 },
		{ "/v1/bridge/workers/build-box%3A7/assignments/asg_01/settle",
		    c1, "wMHCw8TFxsfIycrLzM3Oz9DR",
		    "1b4857ce53d634b6abd17ee049b08382e57c61bc221942228262ceb4f9"
		    "4ed9ca",
		    "WdvWpb710dpL_R753zz4V30G1vM6esB8WrOLPDqubT8bs5YHGxgm5xYVde"
		    "s4tCXAf-yVQYauPeL0yOy_GmOKBw",
		    1772600769000, 0 },
		{ "/v1/bridge/workers/build-box-7/credentials/refresh", c1,
		    "4OHi4-Tl5ufo6err7O3u7_Dx",
		    "f1e39d9b6cd3a60db72c0b80e4679e715bd7e55c1a22762e96234045f4"
		    "6da55c",
		    "nb7k0zqLayIm8qnIh96Lyb3hNsLi7tI1wOB-YOTTlyqJa06cjuXV_03JV-"
		    "CO_oafRAPqN0ja6p6MgszDZZHZDg",
		    1772601600500, 0 },
		{ "/v1/bridge/workers/lab-vm-3/lease", c2,
		    "lp2kq7K5wMfO1dzj6vH4_wYN",
		    "6305fe39be64823f566700c62962aba0ed78750e198f6a89d60a236b95"
		    "002fd2",
		    "JrYfyJIIzAkExb_GU2-0i2fF9NuXEKQxn77rQPgY-a_U1GqsNm9iNblvEg"
		    "b9guhNbSWV1oclXExa_Qznr4c5Dw",
		    1927857906700, 0x40 },
		{ "/v1/bridge/workers/lab%3Avm/lease", c2,
		    "lp2kq7K5wMfO1dzj6vH4_wYN",
		    "6305fe39be64823f566700c62962aba0ed78750e198f6a89d60a236b95"
		    "002fd2",
		    "MyuREKjvNSc6fkZwkzWKW9uLu4HT2E6zJLsunM7RCMwbZzQY3tsZps0_5X"
		    "VlDhtqVNmNxwJJHaxKBnrjIZebCA",
		    1927857906700, 0x40 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		check_vector(&rows[i]);
}

static void
test_keys(void **state)
{
	struct key k;
	struct secret pem;
	char *public;

	(void)state;
	assert_int_equal(key_from_pem(&k, private_pem, strlen(private_pem)), 0);
	public = key_public_pem(&k);
	assert_string_equal(public, public_pem);
	free(public);
	key_private_pem(&k, &pem);
	assert_string_equal(pem.data, private_pem);
	assert_int_equal(pem.len, strlen(private_pem));
	secret_free(&pem);
	assert_int_equal(
	    key_matches_public(&k, public_pem, strlen(public_pem)), 0);
	key_free(&k);
	key_generate(&k);
	assert_int_equal(
	    key_matches_public(&k, public_pem, strlen(public_pem)), -1);
	key_free(&k);
	assert_int_equal(
	    key_from_pem(&k, private_pem, strlen(private_pem) - 3), -1);
	assert_int_equal(key_from_pem(&k, public_pem, strlen(public_pem)), -1);
	assert_int_equal(key_from_pem(&k, "", 0), -1);
}

static void
test_sign_paths(void **state)
{
	static const char *const good[] = { "/v1/bridge/workers/register",
		"/v1/bridge/workers/a%3Ab/lease",
		"/v1/bridge/workers/a%3Ab/assignments/x%2Fy/ack" };
	static const char *const bad[] = { "", "/", "/v1/bridge/workers/",
		"/v1/bridge/workers/a%3Ab", "/v1/bridge/workers/a%3Ab/",
		"/v1/bridge/workers/a:b/lease", "/v1/bridge/workers/c/lease",
		"/v1/bridge/pairings/redeem", "/v2/bridge/workers/register",
		"/bridge/workers/register", "/v1/bridge/workers/registerx",
		"/v1/bridge/workers/a%3Ab/le\nase",
		"/v1/bridge/workers/a%3Ab/lease?x",
		"/v1/bridge/workers/a%3Ab/lease#x" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(sign_path_permitted("/v1", "a:b", good[i]));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(sign_path_permitted("/v1", "a:b", bad[i]));
	assert_true(sign_path_permitted("", "x", "/bridge/workers/register"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identity_names),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_urls_refused),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_default_workspace),
		cmocka_unit_test(test_policy_digest),
		cmocka_unit_test(test_trimmed),
		cmocka_unit_test(test_signatures),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_sign_paths),
	};

	if (sodium_init() == -1)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A stand-in for Pyxis, for tests: the same options, and tasks that really run inside the image.
 *
 * plugstack.conf:  required /path/pyxis.so enroot=/path/enroot containers=/path/folder
 *
 * An image is a squashfs file or a folder (a path), or a name that `enroot import` is asked for. A task gets a mount
 * namespace of its own with the image under a writable layer, the host's /proc /sys /dev /tmp, and the asked mounts;
 * it sees itself as root unless told otherwise. A named container keeps its layer for later steps of any job.
 * Every option is told to the task in PYXIS_TEST_<OPTION>. The entrypoint of an image is not run, nothing is saved.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1);

enum option {
	IMAGE, MOUNTS, WORKDIR, NAME, SAVE, ENV, MOUNT_HOME, NO_MOUNT_HOME, REMAP_ROOT, NO_REMAP_ROOT,
	ENTRYPOINT, NO_ENTRYPOINT, ENTRYPOINT_LOG, WRITABLE, READONLY, OPTIONS
};

static const struct { const char *name, *argument, *usage; } options[OPTIONS] = {
	[IMAGE] = {"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "[pyxis] the image to run in"},
	[MOUNTS] = {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "[pyxis] folders and files to see inside"},
	[WORKDIR] = {"container-workdir", "PATH", "[pyxis] the working folder inside"},
	[NAME] = {"container-name", "NAME", "[pyxis] keep the container under this name"},
	[SAVE] = {"container-save", "PATH", "[pyxis] (not done)"},
	[ENV] = {"container-env", "NAME[,NAME...]", "[pyxis] variables whose value the image cannot change"},
	[MOUNT_HOME] = {"container-mount-home", NULL, "[pyxis] see the home folder inside"},
	[NO_MOUNT_HOME] = {"no-container-mount-home", NULL, "[pyxis] do not see the home folder inside (default)"},
	[REMAP_ROOT] = {"container-remap-root", NULL, "[pyxis] be root inside (default)"},
	[NO_REMAP_ROOT] = {"no-container-remap-root", NULL, "[pyxis] be oneself inside"},
	[ENTRYPOINT] = {"container-entrypoint", NULL, "[pyxis] (not done)"},
	[NO_ENTRYPOINT] = {"no-container-entrypoint", NULL, "[pyxis] do not run the image's entrypoint (default)"},
	[ENTRYPOINT_LOG] = {"container-entrypoint-log", NULL, "[pyxis] (not done)"},
	[WRITABLE] = {"container-writable", NULL, "[pyxis] the container can be written to (default)"},
	[READONLY] = {"container-readonly", NULL, "[pyxis] the container cannot be written to"},
};

static char *given[OPTIONS];
static char enroot[PATH_MAX], containers[PATH_MAX];
static char image[PATH_MAX];    /* where the image's file or folder is */
static char imported[PATH_MAX]; /* what this step imported, removed at its end */
static int image_failed;        /* told by the task: srun takes a failure before tasks for success */
static char root[PATH_MAX];     /* the container's root as seen from outside; "" when there is none */

static int fail(const char *format, ...)
{
	char text[2 * PATH_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	slurm_error("pyxis: %s", text);
	return -1;
}

static int is_container_asked(void)
{
	return given[IMAGE] || given[NAME];
}

static int take_option(int option, const char *argument, int remote)
{
	if (options[option].argument && (!argument || !*argument))
		return fail("--%s: argument required", options[option].name);
	free(given[option]);
	given[option] = strdup(argument ? argument : "1");
	return 0;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	spank_context_t context = spank_context();
	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "enroot=", 7))
			snprintf(enroot, sizeof enroot, "%s", arguments[i] + 7);
		if (!strncmp(arguments[i], "containers=", 11))
			snprintf(containers, sizeof containers, "%s", arguments[i] + 11);
	}
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return 0;
	for (int i = 0; i < OPTIONS; i++) {
		struct spank_option option = {(char *)options[i].name, (char *)options[i].argument, (char *)options[i].usage,
			options[i].argument ? 1 : 0, i, take_option};
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
			return fail("cannot register --%s", options[i].name);
	}
	return 0;
}

/* Run a program, as this user if it is not root; its output goes to that file. Never through a shell. */
static int run(uid_t uid, gid_t gid, char **environment, int output, char *const words[])
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		if (output >= 0 && (dup2(output, 1) < 0 || dup2(output, 2) < 0))
			_exit(126);
		/* In a step this process is the user only for the time being. */
		if (seteuid(0) || (uid && (setgroups(0, NULL) || setgid(gid) || setuid(uid))))
			_exit(126);
		execvpe(words[0], words, environment);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Have `enroot import` fetch an image by its name. What it said is shown when it failed. */
static int import_image(spank_t spank)
{
	uid_t uid;
	gid_t gid;
	uint32_t job, step;
	char **environment, uri[PATH_MAX], line[1024];
	spank_get_item(spank, S_JOB_UID, &uid);
	spank_get_item(spank, S_JOB_GID, &gid);
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	spank_get_item(spank, S_JOB_ENV, &environment);
	snprintf(uri, sizeof uri, "docker://%s", !strncmp(given[IMAGE], "docker://", 9) ? given[IMAGE] + 9 : given[IMAGE]);
	snprintf(imported, sizeof imported, "/tmp/pyxis-%u-%u.%u-%d.sqsh", uid, job, step, getpid());

	FILE *log = tmpfile();
	if (!log)
		return fail("no log file: %s", strerror(errno));
	slurm_info("pyxis: importing docker image: %s", given[IMAGE]);
	char *words[] = {enroot, "import", "-o", imported, uri, NULL};
	if (run(uid, gid, environment, fileno(log), words)) {
		fail("failed to import docker image");
		fail("printing enroot log file:");
		rewind(log);
		while (fgets(line, sizeof line, log)) {
			line[strcspn(line, "\n")] = 0;
			fail("    %s", line);
		}
		fclose(log);
		return -1;
	}
	fclose(log);
	snprintf(image, sizeof image, "%s", imported);
	slurm_info("pyxis: imported docker image: %s", given[IMAGE]);
	return 0;
}

/* May the user read it, and is it an image? */
static int check_image(void)
{
	struct stat status;
	char magic[4] = "";
	int file = open(image, O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &status))
		return fail("[ERROR] No such file or directory: %s (%s)", image, strerror(errno));
	int known = S_ISDIR(status.st_mode) || (read(file, magic, 4) == 4 && !memcmp(magic, "hsqs", 4));
	close(file);
	return known ? 0 : fail("[ERROR] Invalid image format: %s", image);
}

static void tell_task(spank_t spank)
{
	char variable[128];
	for (int i = 0; i < OPTIONS; i++) {
		if (!given[i])
			continue;
		int length = snprintf(variable, sizeof variable, "PYXIS_TEST_%s", options[i].name);
		for (int j = 0; j < length; j++)
			variable[j] = variable[j] == '-' ? '_' : variable[j] >= 'a' && variable[j] <= 'z' ? variable[j] - 32 : variable[j];
		spank_setenv(spank, variable, given[i], 1);
	}
}

/* Where a named container keeps its layer and the name of its image. */
static void named_place(char *place, size_t size, uid_t uid, const char *below)
{
	snprintf(place, size, "%s/%u-%s/%s", containers, uid, given[NAME], below);
}

static int find_image(spank_t spank)
{
	char known[PATH_MAX + 32];
	uid_t uid;
	if (given[NAME]) {
		spank_get_item(spank, S_JOB_UID, &uid);
		named_place(known, sizeof known, uid, "image");
		ssize_t length = readlink(known, image, sizeof image - 1);
		if (length > 0) {
			image[length] = 0;
			return check_image();
		}
		if (!given[IMAGE])
			return fail("container does not exist: %s", given[NAME]);
	}
	if (given[IMAGE][0] != '/' && given[IMAGE][0] != '.')
		return import_image(spank);
	snprintf(image, sizeof image, "%s", given[IMAGE]);
	return check_image();
}

/* In the step's daemon, as the user. */
int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
	if (spank_remote(spank) && is_container_asked()) {
		tell_task(spank);
		image_failed = find_image(spank);
	}
	return 0;
}

static int make_folders(const char *path)
{
	char part[2 * PATH_MAX];
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		if (mkdir(part, 0755) && errno != EEXIST)
			return -1;
		*slash = '/';
	}
	return mkdir(part, 0755) && errno != EEXIST ? -1 : 0;
}

/* Let a folder or file of the host be seen inside. */
static int show(const char *source, const char *target, int read_only)
{
	char place[2 * PATH_MAX], parent[2 * PATH_MAX];
	struct stat status;
	snprintf(place, sizeof place, "%s%s", root, target);
	if (stat(source, &status)) {
		fail("container start failed with error code: 1");
		fail("printing enroot log file:");
		return fail("    enroot-mount: failed to mount: %s at %s: %s", source, target, strerror(errno));
	}
	if (S_ISDIR(status.st_mode)) {
		if (make_folders(place))
			return fail("cannot make %s: %s", target, strerror(errno));
	} else {
		snprintf(parent, sizeof parent, "%s", place);
		*strrchr(parent, '/') = 0;
		int file = make_folders(parent) ? -1 : open(place, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		if (file < 0)
			return fail("cannot make %s: %s", target, strerror(errno));
		close(file);
	}
	if (mount(source, place, NULL, MS_BIND | MS_REC, NULL) ||
	    (read_only && mount(NULL, place, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)))
		return fail("    enroot-mount: failed to mount: %s at %s: %s", source, target, strerror(errno));
	return 0;
}

static int show_asked_mounts(void)
{
	char *entry, *rest = strdup(given[MOUNTS]);
	while ((entry = strsep(&rest, ","))) {
		char *source = strsep(&entry, ":"), *target = strsep(&entry, ":");
		int read_only = 0;
		for (char *flag; (flag = strsep(&entry, "+"));)
			read_only |= !strcmp(flag, "ro");
		if (!*source || (target && *target != '/'))
			return fail("--container-mounts: invalid format: %s", given[MOUNTS]);
		if (show(source, target ? target : source, read_only))
			return -1;
	}
	return 0;
}

/* Mount the image with a layer to write to over it. */
static int mount_root(uid_t uid)
{
	static char base[] = "/run/tao-lab-pyxis"; /* one place for all: it is seen in this namespace only */
	char low[PATH_MAX], up[PATH_MAX + 32], work[PATH_MAX + 32], link[PATH_MAX + 32], text[4 * PATH_MAX];
	struct stat status;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return fail("cannot make a mount namespace: %s", strerror(errno));
	if ((mkdir(base, 0755) && errno != EEXIST) || mount("tmpfs", base, "tmpfs", 0, "mode=755"))
		return fail("cannot mount %s: %s", base, strerror(errno));
	snprintf(low, sizeof low, "%s/low", base);
	snprintf(root, sizeof root, "%s/root", base);
	snprintf(up, sizeof up, "%s/up", base);
	snprintf(work, sizeof work, "%s/work", base);
	if (given[NAME]) {
		named_place(up, sizeof up, uid, "up");
		named_place(work, sizeof work, uid, "work");
		named_place(link, sizeof link, uid, "image");
	}
	if (make_folders(low) || make_folders(root) || make_folders(up) || make_folders(work))
		return fail("cannot make the container's folders: %s", strerror(errno));
	if (given[NAME] && symlink(image, link) && errno != EEXIST)
		return fail("cannot keep the container: %s", strerror(errno));
	if (stat(image, &status))
		return fail("image %s: %s", image, strerror(errno));
	if (S_ISDIR(status.st_mode)) {
		if (mount(image, low, NULL, MS_BIND, NULL))
			return fail("cannot mount %s: %s", image, strerror(errno));
	} else {
		char *words[] = {"mount", "-t", "squashfs", "-o", "loop,ro", image, low, NULL};
		if (run(0, 0, environ, -1, words))
			return fail("failed to create container filesystem: %s", image);
	}
	snprintf(text, sizeof text, "lowerdir=%s,upperdir=%s,workdir=%s", low, up, work);
	/* The user is root inside and owns what is there. */
	if (chown(up, uid, -1) || mount("overlay", root, "overlay", 0, text))
		return fail("cannot lay a layer over %s: %s", image, strerror(errno));
	return 0;
}

/* In the process that becomes the task, still as root. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
	static const char *always[] = {"/proc", "/sys", "/dev", "/tmp", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf"};
	char home[PATH_MAX], folder[PATH_MAX], place[2 * PATH_MAX], **words;
	uint32_t step = 0;
	uid_t uid;
	int number;
	if (!is_container_asked())
		return 0;
	if (image_failed)
		return -1;
	spank_get_item(spank, S_JOB_UID, &uid);
	if (mount_root(uid))
		return -1;
	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		if (!access(always[i], F_OK) && show(always[i], always[i], 0))
			return -1;
	/* `sbatch --container-image`: the script has to be inside, too. */
	if (spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step == SLURM_BATCH_SCRIPT &&
	    spank_get_item(spank, S_JOB_ARGV, &number, &words) == ESPANK_SUCCESS && number && show(words[0], words[0], 1))
		return -1;
	if (given[MOUNT_HOME] && spank_getenv(spank, "HOME", home, sizeof home) == ESPANK_SUCCESS && show(home, home, 0))
		return -1;
	if (given[MOUNTS] && show_asked_mounts())
		return -1;
	/* slurmstepd goes there before we can go elsewhere, and complains if it cannot. */
	if (spank_getenv(spank, "SLURM_SUBMIT_DIR", folder, sizeof folder) == ESPANK_SUCCESS) {
		snprintf(place, sizeof place, "%s%s", root, folder);
		make_folders(place);
	}
	if (given[READONLY] && mount(NULL, root, NULL, MS_REMOUNT | MS_RDONLY, NULL))
		return fail("cannot make the container read-only: %s", strerror(errno));
	if (chdir(root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chroot("."))
		return fail("cannot enter the container: %s", strerror(errno));
	return 0;
}

static int write_file(const char *path, const char *format, unsigned int number)
{
	char text[64];
	int length = snprintf(text, sizeof text, format, number);
	int file = open(path, O_WRONLY | O_CLOEXEC);
	int written = file >= 0 && write(file, text, length) == length;
	if (file >= 0)
		close(file);
	return written ? 0 : fail("cannot write %s: %s", path, strerror(errno));
}

/* Root inside, the user outside. */
static int become_root(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	/* Having been root, this process could not write to its own files in /proc. */
	if (prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER))
		return fail("cannot make a user namespace: %s", strerror(errno));
	return write_file("/proc/self/setgroups", "deny", 0) || write_file("/proc/self/uid_map", "0 %u 1", uid) ||
	       write_file("/proc/self/gid_map", "0 %u 1", gid) ? -1 : 0;
}

static int is_listed(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
		if (!strncmp(at, name, length) && (at[length] == ',' || !at[length]))
			return 1;
	return 0;
}

/* The image's variables win over the job's, except for those that --container-env names. */
static void take_environment_of_image(spank_t spank)
{
	char line[4096], now[4096];
	FILE *file = fopen("/etc/environment", "re");
	while (file && fgets(line, sizeof line, file)) {
		char *value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = 0;
		value[strcspn(value, "\n")] = 0;
		int is_kept = given[ENV] && is_listed(given[ENV], line) && spank_getenv(spank, line, now, sizeof now) == ESPANK_SUCCESS;
		if (!is_kept)
			spank_setenv(spank, line, value, 1);
	}
	if (file)
		fclose(file);
}

/* In the same process, as the user now. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	if (!root[0])
		return 0;
	take_environment_of_image(spank);
	if (!given[NO_REMAP_ROOT] && become_root())
		return -1;
	const char *folder = given[WORKDIR] ? given[WORKDIR] : "/";
	return chdir(folder) ? fail("couldn't chdir to container cwd: %s: %s", folder, strerror(errno)) : 0;
}

/* A named container goes on using what was imported for it. */
int slurm_spank_exit(spank_t spank, int count, char **arguments)
{
	if (spank_remote(spank) && imported[0] && !given[NAME])
		unlink(imported);
	return 0;
}

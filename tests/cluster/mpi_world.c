/* mpi_world.c - an MPI world that outlives its ranks, for testing the virtual cluster.
 *
 *   mpi_world DIR [linger]
 *
 * No MPI message before all ranks have left MPI_Init (known by files in DIR); then every pair talks
 * once, then all leave PMIx, so that a rank's death does not end the step. Rank 0 prints
 * "world of N". With `linger` every rank rewrites DIR/beat.RANK until DIR/stop exists.
 */
#include <fcntl.h>
#include <mpi.h>
#include <pmix.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void file_touch(const char *dir, const char *what, int rank)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", dir, what, rank);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd >= 0) {
        if (write(fd, "x", 1) != 1)
            perror(path);
        close(fd);
    }
}

static int file_exists(const char *dir, const char *what, int rank)
{
    char path[4096];
    if (rank < 0)
        snprintf(path, sizeof path, "%s/%s", dir, what);
    else
        snprintf(path, sizeof path, "%s/%s.%d", dir, what, rank);
    return access(path, F_OK) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const char *dir = argv[1];
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mkdir(dir, 0755);
    file_touch(dir, "init", rank);
    for (int i = 0; i < size; i++)
        while (!file_exists(dir, "init", i))
            usleep(2000);
    for (int i = 0; i < size; i++) {
        int mine = rank, theirs = -1;
        MPI_Sendrecv(&mine, 1, MPI_INT, i, 9, &theirs, 1, MPI_INT, i, 9, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (theirs != i)
            return 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    PMIx_Finalize(NULL, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("world of %d\n", size);
        fflush(stdout);
    }
    if (argc > 2 && strcmp(argv[2], "linger") == 0)
        while (!file_exists(dir, "stop", -1)) {
            file_touch(dir, "beat", rank);
            usleep(100000);
        }
    usleep(100000);
    _exit(0); /* MPI_Finalize would fence through PMIx, which is gone */
}

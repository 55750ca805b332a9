# The rooms, in order of layers. USES_x: the rooms that x may include (`make lint` holds it).
# PKG_x: the pkg-config modules that x includes; those of one room only are in tests/tools/lint_layers.py.
ROOMS := base config model text wire mpi hdf5io slurm engine router ranks cli

USES_base    :=
USES_config  := base
USES_model   := base
USES_text    := base model
USES_wire    := base
USES_mpi     := base model
USES_hdf5io  := base model
USES_slurm   := base config
USES_engine  := base model text wire
USES_router  := base config model text wire engine
USES_ranks   := base config model text wire mpi hdf5io slurm engine router
USES_cli     := base config model text hdf5io slurm engine

PKG_base     := libcrypto
PKG_config   := libcyaml yaml-0.1
PKG_model    := jansson
PKG_text     := libpcre2-8 libutf8proc jansson
PKG_wire     := ucx
PKG_mpi      := ompi-c pmix jansson
PKG_hdf5io   := hdf5
PKG_slurm    := jansson
PKG_engine   := hwloc
PKG_router   := libuv jansson
PKG_ranks    := libuv
PKG_cli      := libcurl jansson

# Programs: NAME = main file, rooms linked.
PROGRAMS := exaserve exaserved exaserve-engine
MAIN_exaserve        := cli/main.c
ROOMS_exaserve       := cli slurm engine hdf5io text wire model config base
MAIN_exaserved       := ranks/main.c
ROOMS_exaserved      := ranks router engine slurm hdf5io mpi wire text model config base
MAIN_exaserve-engine := engine/main.c
ROOMS_exaserve-engine := engine text wire model base

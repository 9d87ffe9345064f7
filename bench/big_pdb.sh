#!/usr/bin/env bash
# big_pdb.sh FOLDER: makes FOLDER/big.pdb of about 290 MB, with clang-19 and lld-link-19. Its code is in FOLDER/big.exe.
set -eu -o pipefail
mkdir -p "$1"
cd "$1"
python3 - <<'END'
functions = 1500
with open("unit.cpp", "w") as out:
    out.write("namespace unit {\nstatic int volatile sink;\n")
    for i in range(functions):
        out.write(f"""struct Type{i} {{
  int a{i}; long long b{i}; Type{i}* next{i};
  inline int get{i}(int v) {{ sink = v; return a{i} + sink; }}
}};
static __attribute__((noinline, used)) int function_with_a_longer_name_{i}(Type{i}* t, int v) {{
  int sum = 0;
  for (int k = 0; k < v; ++k) {{ sum += t->get{i}(k); sink = sum; }}
  return sum + t->get{i}(v + {i});
}}
""")
    out.write("}\n")
with open("public.s", "w") as out:
    out.write(".text\n")
    for i in range(300_000):
        out.write(f".def public_symbol_{i}; .scl 2; .type 32; .endef\n.globl public_symbol_{i}\npublic_symbol_{i}: nop; ret\n")
with open("main.cpp", "w") as out:
    out.write('extern "C" int start() { return 1; }\n')
END
compile=(clang-19 --target=x86_64-pc-windows-msvc -c)
"${compile[@]}" -O1 -g -gcodeview -ffunction-sections unit.cpp -o unit.obj
"${compile[@]}" public.s -o public.obj
"${compile[@]}" -g -gcodeview main.cpp -o main.obj
for i in $(seq 300); do cp unit.obj "unit-$i.obj"; done  # the linker takes a file once, whatever its name
lld-link-19 /nologo /debug /nodefaultlib /opt:noref,noicf /entry:start /subsystem:console /out:big.exe /pdb:big.pdb \
  main.obj public.obj unit-*.obj
rm unit-*.obj
ls -l big.pdb

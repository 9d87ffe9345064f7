; Code with statepoints, for opt -passes=rewrite-statepoints-for-gc and llc. A collector runs in collect().
declare void @collect()

; Keeps two references and a pointer into the first one's object over two calls.
define ptr addrspace(1) @store_inside(ptr addrspace(1) %object, ptr addrspace(1) %other, i1 %which)
    gc "statepoint-example" {
  %third = getelementptr i64, ptr addrspace(1) %object, i64 2
  %fifth = getelementptr i64, ptr addrspace(1) %object, i64 4
  %inside = select i1 %which, ptr addrspace(1) %third, ptr addrspace(1) %fifth
  call void @collect()
  store i64 77, ptr addrspace(1) %inside
  call void @collect()
  %value = load i64, ptr addrspace(1) %other
  %beside = getelementptr i64, ptr addrspace(1) %inside, i64 1
  store i64 %value, ptr addrspace(1) %beside
  ret ptr addrspace(1) %object
}

; More references than registers.
define i64 @sum_of_many(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, ptr addrspace(1) %d,
                        ptr addrspace(1) %e, ptr addrspace(1) %f, ptr addrspace(1) %g, ptr addrspace(1) %h)
    gc "statepoint-example" {
  call void @collect()
  %va = load i64, ptr addrspace(1) %a
  %vb = load i64, ptr addrspace(1) %b
  %vc = load i64, ptr addrspace(1) %c
  %vd = load i64, ptr addrspace(1) %d
  %ve = load i64, ptr addrspace(1) %e
  %vf = load i64, ptr addrspace(1) %f
  %vg = load i64, ptr addrspace(1) %g
  %vh = load i64, ptr addrspace(1) %h
  %1 = add i64 %va, %vb
  %2 = add i64 %1, %vc
  %3 = add i64 %2, %vd
  %4 = add i64 %3, %ve
  %5 = add i64 %4, %vf
  %6 = add i64 %5, %vg
  %7 = add i64 %6, %vh
  ret i64 %7
}

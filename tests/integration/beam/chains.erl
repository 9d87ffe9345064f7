%% Chains of calls whose names the virtual machine prints, and work, for walkers to look at. "chain": prints the stack at
%% the bottom of a chain, "READY", and stays in a function of its own below it, which calls C all the time; "work
%% SECONDS": all kinds of code; "steps": such as calls little C, for ever.
-module(chains).
-export([main/1, run/2]).

main([What | Rest]) ->
    Self = self(),
    spawn(?MODULE, run, [{What, Rest}, Self]),
    receive done -> halt() end.

run(What, Parent) ->
    case What of
        {steps, _} -> steps(true);
        {chain, _} -> outer(1, <<0:80000>>);
        {work, [Seconds]} -> work(erlang:monotonic_time(millisecond) + 1000 * list_to_integer(atom_to_list(Seconds)))
    end,
    Parent ! done.

outer(0, Binary) -> [guarded(Binary)];
outer(Depth, Binary) -> [Depth | outer(Depth - 1, Binary)].

guarded(Binary) ->
    try
        throw(caught)
    catch
        throw:caught -> {bottom(Binary), Binary}
    end.

bottom(Binary) ->
    {current_stacktrace, Stack} = process_info(self(), current_stacktrace),
    [io:format("~w:~w/~w~n", [M, F, A]) || {M, F, A, _} <- Stack],
    io:format("READY~n"),
    hold({Binary, 1 bsl 60000 - 1}, 1 bsl 50) + 1.

%% Does return, as far as the compiler knows: else its callers would leave it their frames.
hold(_, 0) -> 0;
hold({Binary, Big}, Left) ->
    put(hash, erlang:md5(Binary)),
    put(product, Big * Big),  % long for its share of a time slice, between two of which the scheduler does other things
    _ = fibonacci(10),
    hold({Binary, Big}, Left - 1).

fibonacci(N) when N < 2 -> N;
fibonacci(N) -> fibonacci(N - 1) + fibonacci(N - 2).

throws(0) -> 0;
throws(N) -> try deep(N rem 12) catch throw:bottom -> ok end, throws(N - 1).
deep(0) -> throw(bottom);
deep(N) -> 1 + deep(N - 1).

table(N) ->
    T = ets:new(t, []),
    [ets:insert(T, {X, X * 2}) || X <- lists:seq(1, N)],
    Sum = ets:foldl(fun({_, V}, A) -> V + A end, 0, T),
    ets:delete(T),
    Sum.

server(Sum) ->
    receive
        {From, X} -> From ! {self(), X + Sum}, server(Sum + 1);
        stop -> ok
    end.
messages(N) ->
    Server = spawn(fun() -> server(0) end),
    [begin Server ! {self(), X}, receive {Server, _} -> ok end end || X <- lists:seq(1, N)],
    Server ! stop.

steps(First) ->
    fibonacci(12),
    lists:sort([(X * 7919) rem 10007 || X <- lists:seq(1, 50)]),
    lists:foldl(fun(X, A) -> [X | A] end, [], lists:seq(1, 50)),
    base64:encode(<<"some text">>),
    throws(5),
    messages(2),
    First andalso io:format("READY~n"),
    steps(false).

work(End) ->
    fibonacci(18),
    lists:sort([(X * 7919) rem 10007 || X <- lists:seq(1, 2000)]),
    lists:foldl(fun(X, A) -> maps:put({k, X rem 100}, X, A) end, #{}, lists:seq(1, 1000)),
    base64:encode(<<<<X:32>> || X <- lists:seq(1, 1000)>>),
    throws(500),
    lists:flatlength([io_lib:format("~p ~s ~w~n", [X, "abc", {X, a}]) || X <- lists:seq(1, 50)]),
    lists:foldl(fun(X, A) -> A * X end, 1, lists:seq(1, 200)),
    [re:run("hello world 12345", "([a-z]+) ([0-9]+)") || _ <- lists:seq(1, 100)],
    table(500),
    messages(100),
    case get(ready) of
        undefined -> put(ready, true), io:format("READY~n");
        _ -> ok
    end,
    case erlang:monotonic_time(millisecond) < End of
        true -> work(End);
        false -> ok
    end.

(* Each hypothesis is needed: the theorems of this folder with a hypothesis dropped or a sign changed are false.

   For each mutated statement below, its negation is proved by a concrete counterexample with two tokens, over
   every ordered field F. check.py applies the same changes to the files themselves and expects their proofs to
   fail; that failure would prove little by itself. Theorem 2 without the condition on the supports is refuted
   in theorem_2.v, and Theorem 1 as printed in theorem_1.v. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws path_identity exact_round token_free optimal_sequential theorem_1 theorem_2.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Mutants.
Variable F : realFieldType.

Definition two (a b : F) (x : bool) : F := if x then a else b.

Lemma mass_two (f : bool -> F) : mass f = f true + f false.
Proof. exact: big_bool. Qed.

Lemma two_ge0 a b : 0 <= a -> 0 <= b -> nonneg (two a b).
Proof. by move=> a_ge0 b_ge0 []. Qed.

Lemma two_law a b : 0 <= a -> 0 <= b -> a + b = 1 -> is_law (two a b).
Proof. by move=> a_ge0 b_ge0 sum1; split; [apply: two_ge0 | rewrite mass_two]. Qed.

Let law10 : is_law (two 1 0). Proof. by apply: two_law; rewrite ?ler01 ?addr0. Qed.
Let law01 : is_law (two 0 1). Proof. by apply: two_law; rewrite ?ler01 ?add0r. Qed.
Let half : F := 1 / 2%:R.
Let half_gt0 : 0 < half. Proof. by rewrite divr_gt0 ?ltr01 ?ltr0n. Qed.
Let half2 : half + half = 1. Proof. by rewrite /half; field. Qed.
Let half_sub : 1 - half = half. Proof. by rewrite -[X in X - _]half2 addrK. Qed.
Let law_half : is_law (two half half). Proof. by apply: two_law; rewrite ?ltW. Qed.
Let not_le10 : (1 <= 0 :> F) = false. Proof. by rewrite leNgt ltr01. Qed.
Let neq01 : 0 <> 1 :> F. Proof. by move/eqP; rewrite eq_sym oner_eq0. Qed.

(* --- The path identity --- *)

(* without "m_i <= R_i where beta_i = 1" *)
Theorem path_identity_needs_the_minimum : ~ (forall (V : finType) (p : V -> F) (R m : nat -> V -> F),
  mass p = 1 -> R 0%N =1 p ->
  (forall i, beta m i != 1 -> forall x, R i.+1 x = (R i x - m i x) / (1 - beta m i)) ->
  forall n x, path_sum R m n x = p x).
Proof.
move=> claim; pose R i := if i is 0%N then two 0 1 else two 0 0.
have beta1 i : beta (fun=> two 1 0) i = 1 by rewrite /beta mass_two addr0.
have R_next i : beta (fun=> two 1 0) i != 1 ->
    forall x, R i.+1 x = (R i x - two 1 0 x) / (1 - beta (fun=> two 1 0) i).
  by rewrite beta1 eqxx.
have := claim _ (two 0 1) R (fun=> two 1 0) law01.2 (fun=> erefl) R_next 1%N true.
by rewrite /path_sum /weight !big_ord_recl !big_ord0 /= mulr0 mul1r !addr0 => /esym/neq01.
Qed.

(* with R + m in place of R - m *)
Fixpoint grown i : bool -> F :=
  if i is i'.+1 then
    let m x := Num.min (two half 0 x) (grown i' x) in fun x => (grown i' x + m x) / (1 - mass m)
  else two 1 0.

Theorem path_identity_needs_the_sign : ~ (forall (V : finType) (p : V -> F) (R k : nat -> V -> F),
  let m i x := Num.min (k i x) (R i x) in mass p = 1 -> R 0%N =1 p ->
  (forall i, beta m i != 1 -> forall x, R i.+1 x = (R i x + m i x) / (1 - beta m i)) ->
  forall n x, path_sum R m n x = p x).
Proof.
move=> claim; have := claim _ (two 1 0) grown (fun=> two half 0) law10.2 (fun=> erefl) (fun _ _ _ => erefl) 1%N true.
have half_le1 : half <= 1 by rewrite -half2 ler_addl ltW.
rewrite /path_sum /weight !big_ord_recl !big_ord0 /= /beta !mass_two /= minxx addr0 (min_idPl half_le1) !mul1r.
rewrite addr0 half_sub mulr1 mulrCA mulfV ?gt_eqF // mulr1 addrCA half2.
by move/eqP; rewrite -subr_eq0 addrK oner_eq0.
Qed.

(* --- Exact rounds --- *)

(* with acceptance min(1, q/p) *)
Theorem round_marginal_needs_the_ratio : ~ (forall (V : finType) (p q a : V -> F) Rx,
  nonneg p -> nonneg q -> (forall x, q x != 0 -> a x = Num.min 1 (q x / p x)) ->
  forall y, marginal (Round q a (fun x => Draw (Rx x))) y =
    Num.min (p y) (q y) + \sum_x pos (q x - p x) * Rx x y).
Proof.
move=> claim; have two_ge0' : 0 <= 2%:R :> F by rewrite ler0n.
have accept x : two 2%:R 2%:R x != 0 -> two 1 1 x = Num.min 1 (two 2%:R 2%:R x / two 1 1 x).
  by case: x; rewrite /= divr1 (min_idPl _) ?ler1n.
have := claim _ (two 1 1) (two 2%:R 2%:R) _ (fun=> two 0 0) (two_ge0 ler01 ler01)
  (two_ge0 two_ge0' two_ge0') accept true.
by rewrite /= !big_bool /= !mulr0 !addr0 mulr1 (min_idPl _) ?ler1n // => /eqP; rewrite (eqr_nat F 2 1).
Qed.

(* p = (0, 1) and q = (1, 0): candidate true is always drawn and rejected. *)
Let accept01 x : two 1 0 x != 0 -> two 0 0 x = Num.min 1 (two 0 1 x / two 1 0 x).
Proof. by case: x; rewrite /= ?eqxx // mul0r (min_idPr _) ?ler01. Qed.

Lemma rejecting_marginal (Rx : bool -> bool -> F) y :
  marginal (Round (two 1 0) (two 0 0) (fun x => Draw (Rx x))) y = Rx true y.
Proof. by rewrite /= big_bool; case: y => /=; rewrite !(subr0, mul0r, mulr0, mulr1, mul1r, add0r, addr0). Qed.

(* with (q - p)_+ in place of (p - q)_+ *)
Theorem exact_round_needs_the_sign : ~ (forall (V : finType) (p q a : V -> F) Rx,
  nonneg p -> nonneg q -> (forall x, q x != 0 -> a x = Num.min 1 (p x / q x)) ->
  (forall y, marginal (Round q a (fun x => Draw (Rx x))) y = p y) ->
  (forall y, \sum_x pos (q x - p x) * Rx x y = pos (q y - p y))).
Proof.
move=> claim; have := claim _ _ _ _ _ law01.1 law10.1 accept01 (rejecting_marginal (fun=> two 0 1)) false.
rewrite big_bool /= subr0 sub0r pos_id ?ler01 // mul1r !pos_eq0 ?oppr_le0 ?ler01 // mul0r addr0.
by move/esym/neq01.
Qed.

(* for x that cannot be rejected *)
Theorem vanishing_needs_a_rejection : ~ (forall (V : finType) (p q a : V -> F) Rx,
  nonneg p -> nonneg q -> (forall x, q x != 0 -> a x = Num.min 1 (p x / q x)) -> (forall x y, 0 <= Rx x y) ->
  (forall y, marginal (Round q a (fun x => Draw (Rx x))) y = p y) ->
  forall x y, p y <= q y -> Rx x y = 0).
Proof.
move=> claim; pose Rx (x : bool) := if x then two 0 1 else two 1 0.
have Rx_ge0 x y : 0 <= Rx x y by case: x y => -[]; rewrite /= ?ler01.
by have /esym/neq01 := claim _ _ _ _ Rx law01.1 law10.1 accept01 Rx_ge0 (rejecting_marginal Rx) false true ler01.
Qed.

(* --- Reserving mass independently of the rejected token --- *)

(* with 0 <= r in place of (R - q)_+ <= r *)
Theorem shaping_needs_the_lower_bound : ~ (forall (V : finType) (R q a r : V -> F) next,
  is_law R -> is_law q -> (forall x, 0 <= r x) -> (forall x, r x <= R x) ->
  (forall x, q x != 0 -> a x = (R x - r x) / q x) ->
  (forall x y, q x * (1 - a x) != 0 -> marginal (next x) y = r y / mass r) ->
  forall y, marginal (Round q a next) y = R y).
Proof.
move=> claim; have half_ge0 := ltW half_gt0; pose r := two 0 half; pose h := two half half.
have r_le x : r x <= h x by case: x; rewrite /= ?lexx.
have accept x : two 0 1 x != 0 -> two 0 0 x = (h x - r x) / two 0 1 x.
  by case: x; rewrite /= ?eqxx // subrr mul0r.
have next x y : two 0 1 x * (1 - two 0 0 x) != 0 -> two 0 1 y = r y / mass r.
  by case: y => _; rewrite mass_two /= ?mul0r // add0r divff ?gt_eqF.
have := claim _ h _ _ r (fun=> Draw (two 0 1)) law_half law01 (two_ge0 (lexx 0) half_ge0) r_le accept next true.
by rewrite /= big_bool /= !(mul0r, mulr0, addr0) => /eqP; rewrite lt_eqF.
Qed.

(* with a reserve of its own for each rejected token, ResiSpec's idea *)
Theorem shaping_needs_a_common_reserve : ~ (forall (V : finType) (R q a : V -> F) (r : V -> V -> F) next,
  is_law R -> is_law q -> (forall x y, pos (R y - q y) <= r x y) -> (forall x y, r x y <= R y) ->
  (forall x, q x != 0 -> a x = (R x - r x x) / q x) ->
  (forall x y, q x * (1 - a x) != 0 -> marginal (next x) y = r x y / mass (r x)) ->
  forall y, marginal (Round q a next) y = R y).
Proof.
move=> claim; pose h := two half half; pose r (x : bool) := if x then h else two 0 0.
have half_ge0 := ltW half_gt0.
have r_ge x y : pos (h y - h y) <= r x y by rewrite subrr pos_eq0 //; case: x y => -[].
have r_le x y : r x y <= h y by case: x y => -[]; rewrite /= ?lexx.
have accept x : h x != 0 -> two 0 1 x = (h x - r x x) / h x.
  by case: x => _; rewrite /= ?subrr ?mul0r // subr0 divff ?gt_eqF.
have next x y : h x * (1 - two 0 1 x) != 0 -> h y = r x y / mass (r x).
  by case: x; rewrite /= ?subrr ?mulr0 ?eqxx // mass_two /= half2 divr1.
have := claim _ h h _ r (fun=> Draw h) law_half law_half r_ge r_le accept next false.
rewrite /= big_bool /= !(subr0, subrr, mulr0, mul0r, mulr1, addr0) => /eqP.
by rewrite -subr_eq0 addrC addrA addNr add0r mulf_eq0 orbb gt_eqF.
Qed.

(* --- The optimal sequential rule --- *)

Let T1 (k : nat) : F := if k is 0%N then 1 else 0.

Lemma T1_levels (p q : bool -> F) : is_law p -> is_law q -> levels p q 1 T1.
Proof. by move=> p_law q_law; split=> // -[|k] //= _; rewrite /looked_at /missed subrK subr0. Qed.

Lemma phi_disjoint : phi (two 1 0) (two 0 1) 1 = 0.
Proof. by rewrite /phi mass_two /= !mul1r (min_idPr _) ?ler01 // (min_idPl _) ?ler01 // addr0. Qed.

(* without "accepted in all at most p" *)
Theorem bound_needs_the_target : ~ (forall (V : finType) (p q : V -> F) n T A W,
  is_law p -> is_law q -> levels p q n T -> (forall k x, 0 <= A k x) ->
  (forall k x, (k < n)%N -> A k x <= W k * q x) -> W 0%N <= 1 ->
  (forall k, (k < n)%N -> W k.+1 <= W k - mass (A k)) ->
  missed p q T <= 1 - \sum_(0 <= k < n) mass (A k)).
Proof.
move=> claim; have A_le k x : (k < 1)%N -> two 0 1 x <= T1 k * two 0 1 x by case: k => //= _; rewrite mul1r.
have W_next k : (k < 1)%N -> T1 k.+1 <= T1 k - mass (two 0 1) by case: k => //= _; rewrite law01.2 subrr.
have := claim _ _ _ 1%N T1 (fun=> two 0 1) T1 law10 law01 (T1_levels law10 law01)
  (fun=> law01.1) A_le (lexx _) W_next.
by rewrite /missed phi_disjoint big_nat1 law01.2 subrr subr0 not_le10.
Qed.

(* without "accepted at candidate k at most W_k q" *)
Theorem bound_needs_the_draft : ~ (forall (V : finType) (p q : V -> F) n T A W,
  is_law p -> is_law q -> levels p q n T -> (forall k x, 0 <= A k x) ->
  (forall x, \sum_(0 <= k < n) A k x <= p x) -> W 0%N <= 1 ->
  (forall k, (k < n)%N -> W k.+1 <= W k - mass (A k)) ->
  missed p q T <= 1 - \sum_(0 <= k < n) mass (A k)).
Proof.
move=> claim; have W_next k : (k < 1)%N -> T1 k.+1 <= T1 k - mass (two 1 0).
  by case: k => //= _; rewrite law10.2 subrr.
have A_sum x : \sum_(0 <= k < 1) two 1 0 x <= two 1 0 x by rewrite big_nat1.
have := claim _ _ _ 1%N T1 (fun=> two 1 0) T1 law10 law01 (T1_levels law10 law01)
  (fun=> law10.1) A_sum (lexx _) W_next.
by rewrite /missed phi_disjoint big_nat1 law10.2 subrr subr0 not_le10.
Qed.

(* without the limit on the number of candidates *)
Theorem bound_needs_the_length : ~ (forall (V : finType) (p q : V -> F) n T t,
  is_law p -> is_law q -> levels p q n T -> iid q t -> (forall y, marginal t y <= p y) ->
  acceptance t <= phi p q (T 0%N)).
Proof.
move=> claim; pose q := two half half; pose t := Round q (two 1 0) (fun=> Round q (two 1 0) (fun=> Draw (two 1 0))).
have t_iid : iid q t.
  split=> // [[] _ | _]; rewrite /= ?lexx ?ler01 //.
  by split=> // [[] _ | _]; rewrite /= ?lexx ?ler01 //; apply: law10.1.
have t_law y : marginal t y <= two 1 0 y.
  case: y; rewrite /= !big_bool /= !(subrr, subr0, mulr0, mul0r, mulr1, addr0, add0r) ?lexx //.
  by rewrite half2 mulr1 half2.
have := claim _ _ q 1%N T1 t law10 law_half (T1_levels law10 law_half) t_iid t_law.
have -> : phi (two 1 0) q (T1 0) = half.
  rewrite /phi mass_two /= !mul1r (min_idPr _); last by rewrite -half2 ler_addl ltW.
  by rewrite (min_idPl _) ?ltW // addr0.
rewrite /= !big_bool /= !(subrr, subr0, mulr0, mul0r, mulr1, addr0, add0r) leNgt ltr_addl.
by rewrite mulr_gt0.
Qed.

(* without T_n = 0 *)
Theorem acceptance_needs_the_last_level : ~ (forall (V : finType) (p q : V -> F) T n,
  is_law p -> is_law q -> (forall k, (k < n)%N -> 0 <= T k - T k.+1 <= looked_at p q T k) ->
  acceptance (optimal p q T n) = phi p q (T 0%N)).
Proof.
move=> claim.
have := claim _ _ _ (fun=> 1) 0%N law10 law10 (fun k lt_k0 => False_ind _ (elimF idP (ltn0 k) lt_k0)).
rewrite /= /phi mass_two /= !mul1r !minxx addr0.
exact: neq01.
Qed.

(* --- Theorem 1 --- *)

(* for two tokens *)
Theorem every_vocabulary_needs_three : ~ (forall V : finType, (1 < #|V|)%N ->
  exists p q : V -> F, [/\ is_law p, is_law q &
    forall a res, (forall x, q x != 0 -> a x = Num.min 1 (p x / q x)) -> puts_mass_back p q res ->
    ~ (forall z, marginal (Round q a (fun x => Draw (res x))) z = p z)]).
Proof.
move=> claim; have [p [q [p_law q_law biased]]] := claim _ (eq_leq (esym card_bool)).
pose a x := Num.min 1 (p x / q x); pose res (x y : bool) : F := if y == x then 0 else 1.
apply: (biased a res) => // [| z].
  by split=> x y; rewrite /res; case: eqP => // _; rewrite ?ler01 ?ltr01.
rewrite (round_marginal p_law.1 q_law.1) // (bigD1 z) //= (bigD1 (~~ z)) ?big1 //=; last 2 first.
- by case: z => // -[].
- by case: z => // -[].
rewrite /res eqxx mulr0 add0r addr0 (_ : z == ~~ z = false); last by case: z.
have -> : q (~~ z) - p (~~ z) = p z - q z.
  have := p_law.2; have := q_law.2; rewrite !mass_two => <- /eqP; rewrite -subr_eq0 => /eqP eq0.
  by apply/eqP; rewrite -subr_eq0; apply/eqP; rewrite -[RHS]oppr0 -eq0; case: (z) => /=; ring.
by rewrite mulr1 min_pos subrK.
Qed.

(* --- Theorem 2 --- *)

(* any bottleneck token, with or without target mass *)
Theorem strictness_needs_target_mass : ~ (forall (V : finType) (p q : V -> F) Z1 Z2,
  is_law p -> is_law q -> 0 < Z1 -> Z1 < Z2 -> (L p q Z1 < L p q Z2) = [exists x, p x < Z2 * q x]).
Proof.
move=> claim; have half_lt1 : half < 1 by rewrite -half2 ltr_addl.
have := claim _ _ _ _ 1 (p_flat_law F) (q_flat_law F) half_gt0 half_lt1.
rewrite !L_flat_constant ?ltr01 ?lexx ?ltW // ltxx => /esym/negbT/negP; apply; apply/existsP.
by exists (@Ordinal 3 2 isT); rewrite /p_flat /q_flat /three /= !mul1r invr_gt0 ltr0n.
Qed.

(* Z < Z* in place of Z <= Z* *)
Theorem zero_includes_the_end : ~ (forall (V : finType) (p q : V -> F) zs Z,
  is_law p -> is_law q -> is_zstar p q zs -> 0 < Z -> (L p q Z == 0) = (Z < zs)).
Proof.
move=> claim; have zs1 : is_zstar (two 1 0) (two 1 0) 1.
  by split; [exists true; rewrite /= ?ltr01 ?divr1 | case; rewrite /= ?ltxx ?divr1].
have := claim _ _ _ _ 1 law10 law10 zs1 ltr01.
by rewrite (L_zero_iff law10 law10 zs1) ?ltr01 // lexx ltxx.
Qed.

(* non-increasing in place of non-decreasing *)
Theorem L_does_not_decrease : ~ (forall (V : finType) (p q : V -> F) Z1 Z2,
  is_law p -> is_law q -> 0 < Z1 -> Z1 <= Z2 -> L p q Z2 <= L p q Z1).
Proof.
move=> claim; have le12 : 1 <= 2%:R :> F by rewrite ler1n.
have := claim _ _ _ _ _ law10 law10 ltr01 le12; rewrite leNgt L_strict_iff ?ltr01 ?ltr1n //.
by move=> /negP; apply; apply/existsP; exists true; rewrite /binding /= ltr01 mulr1 ltr1n.
Qed.

End Mutants.

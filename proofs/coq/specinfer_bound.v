(* How far SpecInfer can be below the limit of exact rules.

   Proved, for every finite V, every ordered field F, all laws p, q and every n. phi(t) = sum_x min(p(x), t q(x));
   S 0 = 1 and S k.+1 = S k + (1 - phi(S k)).
   - SpecInfer accepts one of n.+1 candidates from q with probability phi(S n)           (specinfer_accepts).
   - A sequential rule of up to n candidates from q, whatever it remembers, that emits the set H with probability at
     most p(H) accepts with probability at most 1 + p(H) - q(H)^n                        (transport_bound).
   - For H = {x | p x <= S n * q x}, c = p(H) and u = q(H): 1 - phi(S n) <= u^n (u - c)  (specinfer_below).
   - So u > 0, and a rule of up to n.+1 candidates with marginal p accepts at most
     1 + u - u^(n+1) - (1 - phi(S n)) / u^n                                              (specinfer_bound),
     which is a bound by SpecInfer's acceptance                                          (specinfer_gap).
   Left: joint rules; the largest value over u, which needs roots. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws token_free piecewise optimal_sequential.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section SpecInfer.
Variables (F : realFieldType) (V : finType) (p q : V -> F).
Hypothesis p_law : is_law p.
Hypothesis q_law : is_law q.

Fixpoint S (k : nat) : F := if k is k'.+1 then S k' + (1 - phi p q (S k')) else 1.

Section Line.
Variables c u : F.
Definition line (t : F) : F := c + (1 - u) * t.
Hypothesis above : forall t, phi p q t <= line t.

(* The same recursion with the line in the place of phi. *)
Fixpoint slower (k : nat) : F := if k is k'.+1 then slower k' + (1 - line (slower k')) else 1.

Lemma slower_left k : 1 - line (slower k) = u ^+ k * (u - c).
Proof.
elim: k => [| k IHk]; first by rewrite /line /= expr0; ring.
by rewrite exprS -mulrA -IHk /= /line; ring.
Qed.

Lemma slower_le k : slower k <= S k.
Proof.
elim: k => [| k IHk] //=.
apply: (@le_trans _ _ (slower k + (1 - phi p q (slower k)))).
  by rewrite ler_add2l ler_sub ?lexx ?above.
have step := gap_mono p q_law IHk.
by rewrite ![_ + (1 - _)]addrCA ler_add2l.
Qed.

End Line.

Definition under (s : F) : pred V := fun x => p x <= s * q x.
Definition mass_p s : F := \sum_(x | under s x) p x.
Definition mass_q s : F := \sum_(x | under s x) q x.

Lemma other_mass s : 1 - mass_q s = \sum_(x | ~~ under s x) q x.
Proof. by rewrite -q_law.2 /mass (bigID (under s)) /= /mass_q [X in X - _]addrC addrK. Qed.

Lemma line_above s t : phi p q t <= line (mass_p s) (mass_q s) t.
Proof.
rewrite /line other_mass mulr_suml /phi /mass (bigID (under s)) /=.
apply: ler_add; apply: ler_sum => x _; first by rewrite le_minl lexx.
by rewrite mulrC le_minl lexx orbT.
Qed.

Lemma line_touches s : phi p q s = line (mass_p s) (mass_q s) s.
Proof.
rewrite /line other_mass mulr_suml /phi /mass (bigID (under s)) /=.
congr (_ + _); apply: eq_bigr => x; rewrite /under => px; first by apply/min_idPl.
by rewrite mulrC; apply/min_idPr/ltW; rewrite mulrC ltNge.
Qed.

Lemma S_ge1 k : 1 <= S k.
Proof.
elim: k => [| k IHk] //=; apply: (le_trans IHk).
by rewrite ler_addl subr_ge0 phi_le1.
Qed.

Lemma mass_q_le1 s : mass_q s <= 1.
Proof.
rewrite -q_law.2 /mass (bigID (under s)) /= ler_addl.
by apply: sumr_ge0 => x _; apply: q_law.1.
Qed.

(* Not all of the draft's mass can be where p > s q with s >= 1. *)
Lemma mass_q_gt0 s : 1 <= s -> 0 < mass_q s.
Proof.
move=> s_ge1; rewrite lt_neqAle sumr_ge0 ?andbT; last by move=> x _; apply: q_law.1.
apply/eqP => /esym none.
have zero x : under s x -> q x = 0.
  by apply: (psumr_eq0P _ none) => y _; apply: q_law.1.
have below x : q x <= p x.
  case: (boolP (under s x)) => [/zero -> | ]; first exact: p_law.1.
  rewrite /under -ltNge => /ltW; apply: le_trans.
  by rewrite ler_pemull // q_law.1.
have same := equal_mass below (etrans q_law.2 (esym p_law.2)).
have all_zero x : q x = 0.
  apply: zero; rewrite /under -same ler_pemull //; exact: q_law.1.
by have := q_law.2; rewrite /mass big1 // => /eqP; rewrite eq_sym oner_eq0.
Qed.

Theorem specinfer_below n :
  1 - phi p q (S n) <= mass_q (S n) ^+ n * (mass_q (S n) - mass_p (S n)).
Proof.
rewrite -slower_left ler_sub ?lexx // line_touches /line ler_add2l.
by rewrite ler_wpmul2l ?subr_ge0 ?mass_q_le1 // slower_le //; apply: line_above.
Qed.

Theorem transport_bound (H : pred V) n t : iid q t -> rounds_le n t ->
  acceptance t <= 1 + \sum_(x | H x) marginal t x - (\sum_(x | H x) q x) ^+ n.
Proof.
set u := \sum_(x | H x) q x.
have u_ge0 : 0 <= u by apply: sumr_ge0 => x _; apply: q_law.1.
have u_le1 : u <= 1.
  by rewrite -q_law.2 /mass (bigID H) /= ler_addl; apply: sumr_ge0 => x _; apply: q_law.1.
elim: t n => [R | q' a next IH] n.
  move=> R_ge0 _ /=; rewrite -addrA addrCA addr_ge0 ?subr_ge0 ?exprn_ile1 //.
  by apply: sumr_ge0 => x _; apply: R_ge0.
case: n => [[] // | n] /= [eq_q a01 next_iid] next_le.
have w_ge0 : 0 <= 1 - u ^+ n by rewrite subr_ge0 exprn_ile1.
have next_bound x : q' x * (1 - a x) * acceptance (next x) <=
    q' x * (1 - a x) * (1 - u ^+ n) + q' x * (1 - a x) * \sum_(y | H y) marginal (next x) y.
  rewrite -mulrDr ler_wpmul2l //; last by rewrite [1 - _ + _]addrAC; apply: IH.
  by rewrite eq_q; have [_] := accept_ge0 q_law (a01 x).
have emitted : \sum_(y | H y) (q' y * a y + \sum_x q' x * (1 - a x) * marginal (next x) y) =
    \sum_(y | H y) q' y * a y + \sum_x q' x * (1 - a x) * \sum_(y | H y) marginal (next x) y.
  rewrite big_split /= exchange_big /=; congr (_ + _).
  by apply: eq_bigr => x _; rewrite mulr_sumr.
rewrite emitted.
have total := ler_sum (index_enum V) (fun x (_ : true) => next_bound x).
rewrite big_split /= in total.
rewrite -(ler_add2l (\sum_x q' x * a x)) in total; apply: (le_trans total).
rewrite [X in X + (_ + _)](bigID H) /= [X in _ + (X + _)](bigID H) /=.
have inside : \sum_(x | H x) q' x * (1 - a x) * (1 - u ^+ n) <= u * (1 - u ^+ n).
  rewrite /u mulr_suml; apply: ler_sum => x _; rewrite ler_wpmul2r // eq_q.
  have [/andP[qa_ge0 _] _] := accept_ge0 q_law (a01 x).
  by apply: (le_of_diff qa_ge0); ring.
have outside : \sum_(x | ~~ H x) q' x * a x + \sum_(x | ~~ H x) q' x * (1 - a x) * (1 - u ^+ n) <= 1 - u.
  have -> : 1 - u = \sum_(x | ~~ H x) q x.
    by rewrite -q_law.2 /mass (bigID H) /= /u [X in X - _]addrC addrK.
  rewrite -big_split /=; apply: ler_sum => x _.
  have [_ rest_ge0] := accept_ge0 q_law (a01 x).
  apply: (@le_of_diff _ _ _ (q x * (1 - a x) * u ^+ n)); last by rewrite eq_q; ring.
  by rewrite mulr_ge0 ?exprn_ge0.
move: inside outside; rewrite -subr_ge0 => inside; rewrite -subr_ge0 => outside.
apply: (le_of_diff (addr_ge0 inside outside)); rewrite exprS.
move: (\sum_(x | H x) q' x * a x) (\sum_(x | ~~ H x) q' x * a x) => A B.
move: (\sum_(x | H x) q' x * (1 - a x) * (1 - u ^+ n)) (\sum_(x | ~~ H x) q' x * (1 - a x) * (1 - u ^+ n)) => C D.
by move: (\sum_x q' x * (1 - a x) * (\sum_(y | H y) marginal (next x) y)) => E; ring.
Qed.

Theorem specinfer_bound n t : let u := mass_q (S n) in
  iid q t -> rounds_le n.+1 t -> (forall y, marginal t y = p y) ->
  0 < u /\ acceptance t <= 1 + u - u ^+ n.+1 - (1 - phi p q (S n)) / u ^+ n.
Proof.
move=> u t_iid t_le t_law; have u_gt0 : 0 < u by apply: mass_q_gt0; apply: S_ge1.
split=> //; have un_gt0 : 0 < u ^+ n by rewrite exprn_gt0.
apply: (le_trans (transport_bound (under (S n)) t_iid t_le)).
rewrite (eq_bigr _ (fun x _ => t_law x)) -/(mass_p (S n)) -/(mass_q (S n)) -/u.
have le_c : (1 - phi p q (S n)) / u ^+ n <= u - mass_p (S n).
  by rewrite ler_pdivr_mulr // mulrC specinfer_below.
by apply: (@le_of_diff _ _ _ (u - mass_p (S n) - (1 - phi p q (S n)) / u ^+ n)); rewrite ?subr_ge0 //; ring.
Qed.

(* SpecInfer's own acceptance. Its residual after some rejections is (p - s q)_+, divided by its mass 1 - phi(s);
   one more rejection takes s to next_time s. *)
Definition next_time (s : F) : F := s + (1 - phi p q s).

Lemma left_mass s : mass (fun x => pos (p x - s * q x)) = 1 - phi p q s.
Proof. by rewrite /phi -p_law.2 -massB; apply: eq_mass => x; rewrite minC pos_min. Qed.

Lemma next_time_full k s : phi p q s = 1 -> phi p q (iter k next_time s) = 1.
Proof. by move=> full; elim: k => [| k IHk] //=; rewrite {1}/next_time IHk subrr addr0. Qed.

Lemma pos_further (s w x y : F) : 0 <= w * y -> pos (pos (x - s * y) - w * y) = pos (x - (s + w) * y).
Proof.
move=> wy_ge0; rewrite mulrDl opprD addrA; have [nonneg_x | /ltW neg_x] := leP 0 (x - s * y).
  by rewrite (pos_id nonneg_x).
rewrite (pos_eq0 neg_x) sub0r pos_eq0 ?oppr_le0 // pos_eq0 //.
by rewrite subr_le0 (le_trans neg_x).
Qed.

Lemma specinfer_from n s R : (forall x, (1 - phi p q s) * R x = pos (p x - s * q x)) ->
  (1 - phi p q s) * acceptance (specinfer (nseq n q) R) = phi p q (iter n next_time s) - phi p q s.
Proof.
elim: n s R => [| n IHn] s R left_R; first by rewrite /= mulr0 subrr.
have [w0 | w_neq0] := eqVneq (1 - phi p q s) 0.
  have full : phi p q s = 1 by apply/esym/eqP; rewrite -subr_eq0 w0.
  by rewrite next_time_full // full subrr mul0r.
have w_gt0 : 0 < 1 - phi p q s by rewrite lt_neqAle eq_sym w_neq0 subr_ge0 phi_le1.
have R_ge0 : nonneg R by move=> x; rewrite -(pmulr_rge0 _ w_gt0) left_R pos_ge0.
have R_mass : mass R = 1 by apply: (mulfI w_neq0); rewrite -massZ (eq_mass left_R) left_mass mulr1.
pose r x := pos (R x - q x).
have left_r x : (1 - phi p q s) * r x = pos (p x - next_time s * q x).
  rewrite -(pos_further _ _ (mulr_ge0 (ltW w_gt0) (q_law.1 x))) -left_R -mulrBr /r.
  by rewrite !pos_def pmulr_rge0 //; case: ifP => _; rewrite ?mulr0.
have r_mass : (1 - phi p q s) * mass r = 1 - phi p q (next_time s).
  by rewrite -massZ (eq_mass left_r) left_mass.
have accepted x : q x * Num.min 1 (R x / q x) = R x - r x.
  have [q0 | q_neq0] := eqVneq (q x) 0; first by rewrite /r q0 mul0r subr0 pos_id ?subrr.
  have q_gt0 : 0 < q x by rewrite lt_neqAle eq_sym q_neq0 q_law.1.
  rewrite /r -min_pos; case: (leP 1 (R x / q x)) => [| /ltW].
    by rewrite le_div // mul1r mulr1 => /min_idPr ->.
  by rewrite ler_pdivr_mulr // mul1r => /min_idPl ->; rewrite mulrC divfK.
set a := fun x => Num.min 1 (R x / q x).
have once : \sum_x q x * a x = 1 - mass r.
  by rewrite (eq_bigr _ (fun x _ => accepted x)) sumrB -R_mass.
have rest : \sum_x q x * (1 - a x) = mass r.
  rewrite (eq_bigr (fun x => q x - q x * a x)) => [| x _]; last by rewrite mulrBr mulr1.
  by rewrite sumrB once -q_law.2 opprB addrCA subrr addr0.
rewrite /= -/a -mulr_suml once rest mulrDr mulrA r_mass -/r.
rewrite (IHn (next_time s) (scale (mass r) r)) => [| x].
  rewrite mulrBr mulr1 r_mass -iterSr /=; ring.
rewrite -left_r -r_mass /scale.
have [r0 | r_neq0] := eqVneq (mass r) 0; last by rewrite -mulrA [mass r * _]mulrC divfK.
by rewrite r0 (mass0 _ r0) ?mul0r ?mulr0 ?mul0r // => y; apply: pos_ge0.
Qed.

(* SpecInfer with n.+1 candidates accepts phi(S n). *)
Theorem specinfer_accepts n : acceptance (specinfer (nseq n.+1 q) p) = phi p q (S n).
Proof.
have time0 : phi p q 0 = 0 by rewrite phi0 //; apply: p_law.1.
have start x : (1 - phi p q 0) * p x = pos (p x - 0 * q x).
  by rewrite time0 subr0 mul1r mul0r subr0 pos_id // p_law.1.
have := specinfer_from n.+1 start; rewrite time0 !subr0 mul1r => ->; congr phi.
by elim: n => [| n IHn]; [rewrite /= /next_time time0; ring | rewrite iterS IHn].
Qed.

(* The bound, by SpecInfer's acceptance itself. *)
Corollary specinfer_gap n t : let u := mass_q (S n) in
  iid q t -> rounds_le n.+1 t -> (forall y, marginal t y = p y) ->
  acceptance t <= 1 + u - u ^+ n.+1 - (1 - acceptance (specinfer (nseq n.+1 q) p)) / u ^+ n.
Proof. by move=> u t_iid t_le t_law; rewrite specinfer_accepts; have [] := specinfer_bound t_iid t_le t_law. Qed.

End SpecInfer.
